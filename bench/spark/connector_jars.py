"""Gets Spark's Kafka connector from Maven Central, once; later runs find it where it was put."""

import shutil
import subprocess
from pathlib import Path

from bench.peers.kafka_jars import NotObtainable

CONNECTOR = "4.2.0"
"""The newest on Maven Central (2026-11). It runs in Spark 4.3 too, so both sides have the same Spark."""

_POM = Path(__file__).resolve().parents[2] / "tests" / "compat" / "spark" / "pom.xml"
_LAST_WORDS = 500


def connector_jars(cache: Path) -> Path:
    """A folder with all jars that Spark lacks to speak to Kafka."""
    folder = cache / f"spark-kafka-{CONNECTOR}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(_POM), f"-Dspark.version={CONNECTOR}"]
        command += [f"-DoutputDirectory={unfinished.resolve()}", "dependency:copy-dependencies"]
        if shutil.which("mvn") is None:
            raise NotObtainable("mvn is not installed")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            why = " ".join(done.stdout.split())[:_LAST_WORDS]
            raise NotObtainable(f"Maven could not get Spark's Kafka connector {CONNECTOR}: {why}")
        unfinished.rename(folder)
    return folder
