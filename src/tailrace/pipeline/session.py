"""The Spark session of a pipeline: tuned for small batches on one machine, plain enough for a cluster."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.model.limits import MIB
from tailrace.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_JAVA = 17
_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA = "-XX:-DontCompileHugeMethods"
"""Many routes make long methods, which Java would not compile: twenty took 12 µs of CPU a change instead of 5."""
_LONGEST_METHOD = "8000"
"""Bytes of code that every Java compiles; for clusters, whose Java others start. Spark cuts what is longer: 6 µs."""
_ALLOCATORS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
    "MIMALLOC_PURGE_DELAY": "1000",
}
"""For Java and Python's workers: memory of one step is kept for the next, of the same size, instead of given back at once and
asked for again page by page. The first is the most that glibc takes. See decision 0024."""
_LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def check_spark() -> None:
    """Raises, with what to do, where Spark or Java is missing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise PipelineError("PySpark is not installed. Install it with: pip install 'tailrace[spark]'") from None
    java = _java()
    if java is None:
        raise PipelineError(
            "Java is not installed, and Spark needs it. Install Java 17 or newer, with the system's package manager (on Debian:"
            " apt install openjdk-17-jre-headless), or set JAVA_HOME"
        )
    version = _version_of(java)
    if version is not None and version < _LEAST_JAVA:
        raise PipelineError(f"{java} is Java {version}, and Spark needs {_LEAST_JAVA} or newer; set JAVA_HOME to another one")


def spark_session(master: str, *, name: str = "tailrace pipeline") -> "SparkSession":
    check_spark()
    # Spark would take the first python3 on the path, which may lack our package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config("spark.sql.streaming.pollingDelay", "10ms")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .config("spark.sql.streaming.stopTimeout", "10s")
        .config("spark.python.daemon.module", "tailrace.pipeline.daemon")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOGGING} {_JAVA}")
    )
    if master.startswith("local"):
        # Its files are renamed, which is atomic on a local disk. The marks are with the server in any case.
        builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", _LOCAL_CHECKPOINTS)
    else:
        builder = builder.config("spark.sql.codegen.hugeMethodLimit", _LONGEST_METHOD)
        for variable, value in _ALLOCATORS.items():
            builder = builder.config(f"spark.executorEnv.{variable}", value)
    with _environment(_ALLOCATORS):
        return builder.getOrCreate()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Java gets these, where they are not set, and hands them on; other children of this process don't."""
    missing = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        return str(path) if path.exists() else None
    return shutil.which("java")


def _version_of(java: str) -> int | None:
    """The major version, or `None` where it does not say."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603
    except OSError:
        return None
    quoted = said.partition('"')[2].partition('"')[0].removeprefix("1.")
    major = quoted.partition(".")[0]
    return int(major) if major.isdigit() else None
