"""Gets Apache Kafka from Maven Central, once; later runs find it where it was put."""

import shutil
import subprocess
from pathlib import Path

KAFKA = "4.3.1"
"""The newest release whose broker is on Maven Central (2026-11)."""

_POM = Path(__file__).with_name("kafka.pom.xml")
_LAST_WORDS = 500


class NotObtainable(Exception):
    """Kafka can't be run here. The message says why, in one line."""


def kafka_jars(cache: Path) -> Path:
    """A folder with all jars of a broker."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NotObtainable(f"{program} is not installed")
    folder = cache / f"kafka-{KAFKA}"
    if not folder.exists():
        # Under another name first, so that what is there under its own name is complete.
        unfinished = folder.with_suffix(".unfinished")
        _copy_dependencies(unfinished)
        unfinished.rename(folder)
    return folder


def _copy_dependencies(folder: Path) -> None:
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(_POM), f"-Dkafka.version={KAFKA}"]
    command += [f"-DoutputDirectory={folder.resolve()}", "dependency:copy-dependencies"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        why = " ".join(done.stdout.split())[:_LAST_WORDS]
        raise NotObtainable(f"Maven could not get Kafka {KAFKA}: {why}")
