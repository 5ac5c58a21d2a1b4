"""The Spark session of a pipeline: tuned for small batches on one machine, plain enough for a cluster.

Spark's own way to fail is a trace of Java on stderr. What can be known before Java is started is checked before, and what Java
says while Spark starts is held back: it is passed on when Spark runs, or becomes the one line that says why it does not.
"""

import contextlib
import os
import re
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.model.limits import MIB
from tailrace.pipeline.errors import SparkError
from tailrace.pipeline.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[[\d, ]+\]|spark://.+|k8s://.+|yarn")
_PYTHON = "PYSPARK_PYTHON"
_STANDALONE = "spark://"
_MASTER_SECONDS = 10.0
_KEPT_LINES = 200
_NOISE = ("WARNING: ", "Picked up ", "Setting default log level", "To adjust logging level")
"""Java and Spark say so whenever they start, and nobody need do anything about it."""


def check_spark(master: str | None = None) -> Java:
    """Return the Java that Spark is to run on. Raises, with what to do, where it, Spark or the master is missing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise SparkError("PySpark is not installed. Install it with: pip install 'tailrace[spark]'") from None
    if master is not None:
        _check_master(master)
    return find_java()


def _check_master(master: str) -> None:
    if not _MASTER.fullmatch(master):
        raise SparkError(
            f"{master!r} is no Spark master. Use local[*] for this machine, local[2] for two cores of it, spark://HOST:7077,"
            " yarn or k8s://HOST:PORT"
        )
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SparkError(
            "the master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR; set one to the folder with your cluster's settings"
        )


def check_master_answers(master: str) -> None:
    """Raise where nobody listens at a standalone master: Spark would try for minutes."""
    if not master.startswith(_STANDALONE):
        return
    why: object = "no address"
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise SparkError(f"{master!r} is no Spark master: {address!r} is not HOST:PORT, such as spark://10.0.0.7:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_SECONDS).close()
        except OSError as error:
            why = error.strerror or error
        else:
            return
    raise SparkError(
        f"no Spark master answers at {master}: {why}. Start it, or give the address of one that runs with --master"
    )


def prepare_spark() -> Java:
    """Set up the environment for the first Spark session of this process, whoever starts it.

    Spark's workers run this Python, unless PYSPARK_PYTHON says otherwise, and Spark finds a Java: by pip, if there is no other.
    """
    java = check_spark()
    for name, value in _wanted(java).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return java


def print_environment() -> None:
    """Print the same for a shell to evaluate: what `pyspark` and `spark-submit` need to be set."""
    for name, value in _wanted(check_spark()).items():
        sys.stdout.write(f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n")


def _wanted(java: Java) -> dict[str, str | None]:
    # Spark would take the first python3 on the path, which may lack our package.
    return {**java.environment, _PYTHON: os.environ.get(_PYTHON, sys.executable)}


def spark_session(master: str, *, name: str = "tailrace pipeline") -> "SparkSession":
    _check_master(master)
    check_master_answers(master)
    prepare_spark()
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
    java = _JavaErrors()
    try:
        with _environment(_ALLOCATORS):
            java.launch(builder._options)
        session = builder.getOrCreate()
    except Exception as error:
        from tailrace.pipeline.spark_failures import start_failure

        raise start_failure(error, master, java.held_back()) from error
    java.pass_on()
    return session


class _JavaErrors:
    """What Java writes to stderr, line by line. Nothing comes by a Java that was started before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[str] | None = []
        """`None` when lines are passed on as they come."""

    def launch(self, options: Mapping[str, str]) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        if SparkContext._gateway is not None:
            return
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        ours, theirs = os.pipe()
        following = threading.Thread(target=self._follow, args=(ours,), name="tailrace-java-errors", daemon=True)
        following.start()
        try:
            gateway = launch_gateway(conf, {"stderr": theirs})  # type: ignore[no-untyped-call]
        except BaseException:
            os.close(theirs)
            # All that a Java said that has ended.
            following.join(_MASTER_SECONDS)
            raise
        os.close(theirs)
        SparkContext._ensure_initialized(gateway=gateway)

    def held_back(self) -> list[str]:
        with self._lock:
            return [line for line in self._held or () if line.strip() and not line.startswith(_NOISE)]

    def pass_on(self) -> None:
        with self._lock:
            lines, self._held = self._held or [], None
        for line in lines:
            _print(line)

    def _follow(self, descriptor: int) -> None:
        with open(descriptor, errors="replace") as lines:
            for line in lines:
                with self._lock:
                    is_held = self._held is not None
                    if self._held is not None and len(self._held) < _KEPT_LINES:
                        self._held.append(line.rstrip("\n"))
                if not is_held:
                    _print(line.rstrip("\n"))


def _print(line: str) -> None:
    if sys.stderr is not None and not line.startswith(_NOISE):
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


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


if __name__ == "__main__":
    try:
        print_environment()
    except SparkError as error:
        sys.exit(f"tailrace: {error}")
