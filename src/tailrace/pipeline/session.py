"""The Spark session of a pipeline.

The session is tuned for small batches on one machine, and plain enough for a cluster. When Spark fails to start, it prints a
Java stack trace. So what can be checked before Java starts is checked first, and what Java prints while Spark starts is held
back: it is printed when Spark runs, or turned into one line that says why Spark did not start.

On a cluster the workers get our package by an archive (`worker_archive.py`), or have it. A driver that spark-submit has started
is given its master, its settings and its Java by it.
"""

import contextlib
import os
import re
import shlex
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tailrace.model.limits import MIB
from tailrace.pipeline.daemon import OTHER_INTERPRETER
from tailrace.pipeline.errors import SparkError
from tailrace.pipeline.java import Java, find_java
from tailrace.pipeline.worker_archive import FOLDER, archive_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW_START = "Python worker failed to connect back"
"""What Spark reports of a worker that took more than ten seconds to start. That is short on a busy machine and can't be
configured."""
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
_THIS_MACHINE = "local[*]"
_STANDALONE = "spark://"
_KUBERNETES = "k8s://"
_CONNECT = "sc://"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it runs."""
_ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
_WORKERS_PATH = "spark.executorEnv.PYTHONPATH"
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
_OTHER_ARCHIVE = re.compile(rf"{OTHER_INTERPRETER} (?P<wanted>.+?), and (?P<python>.+?) is (?P<found>Python .+)")
_HOW_WORKERS_GET_IT = (
    "Make an archive with: tailrace pipeline package, and pass it with --archives; or install the same version of"
    " tailrace[spark] for it on every machine that runs tasks"
)
_REQUIRED_MODULES = ("tailrace", "pyarrow", "msgspec", "numba", "numpy")


def check_spark(master: str | None = None) -> Java:
    """Return the Java that Spark is to run on. Raise an error that says what to do if it, Spark or the master is missing."""
    check_pyspark()
    if master is not None:
        _check_master(master)
    return _submitting_java() if _SUBMITTED in os.environ else find_java()


def check_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise SparkError("PySpark is not installed. Install it with: pip install 'tailrace[spark]'") from None


def chosen_master(master: str | None) -> str:
    """Return the master that was asked for, else that of spark-submit, else this machine."""
    submitted = submitted_settings().get("spark.master")
    if submitted is not None and master not in (None, submitted):
        raise SparkError(f"spark-submit has started this at {submitted}, so --master {master} is too late. Leave it out")
    return master or submitted or _THIS_MACHINE


def submitted_settings() -> Mapping[str, str]:
    """Return what spark-submit was given, with the defaults of its installation; nothing if it did not start this process."""
    if _SUBMITTED not in os.environ:
        return {}
    check_connect()
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _submitting_java() -> Java:
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    version = SparkContext._jvm.System.getProperty("java.specification.version")  # type: ignore[union-attr]
    return Java("of spark-submit", int(version), {})


def check_connect(master: str = "") -> None:
    """Raise an error that says what to do if the session would be one of Spark Connect."""
    remote = os.environ.get("SPARK_REMOTE")
    if not master.startswith(_CONNECT) and not remote:
        return
    where = f"--master {master}" if master.startswith(_CONNECT) else f"SPARK_REMOTE={remote}"
    raise SparkError(
        f"the pipeline can't run through Spark Connect ({where}): each batch calls back into its process, which Connect does in"
        " the cluster instead. Leave that out, and pass the master of the same cluster with --master, or use spark-submit"
    )


def _check_master(master: str) -> None:
    check_connect(master)
    if not _MASTER.fullmatch(master):
        raise SparkError(
            f"{master!r} is not a Spark master. Use local[*] for this machine, local[2] for two cores of it, spark://HOST:7077,"
            " yarn or k8s://HOST:PORT"
        )
    if (
        master == "yarn"
        and _SUBMITTED not in os.environ
        and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR"))
    ):
        raise SparkError(
            "the master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR; set one to the folder with your cluster's settings"
        )


def check_master_answers(master: str) -> None:
    """Raise an error if nobody listens at the address of a standalone master or of Kubernetes; Spark would try for minutes."""
    why: object = "no address"
    addresses = _addresses_of(master)
    for host, port in addresses:
        try:
            socket.create_connection((host, port), _MASTER_SECONDS).close()
        except OSError as error:
            why = error.strerror or error
        else:
            return
    if addresses:
        what = "Kubernetes API server" if master.startswith(_KUBERNETES) else "Spark master"
        raise SparkError(f"no {what} answers at {master}: {why}. Start it, or pass the address of a running one with --master")


def _addresses_of(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports that a master URL names."""
    if master.startswith(_KUBERNETES):
        url = master.removeprefix(_KUBERNETES)
        parts = urlsplit(url if "://" in url else f"https://{url}")
        try:
            host, port = parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)
        except ValueError:
            host = port = None
        if not host or not port:
            raise SparkError(f"{master!r} is not a Spark master: {url!r} is not HOST:PORT, such as k8s://https://10.0.0.7:6443")
        return [(host, port)]
    found = []
    if master.startswith(_STANDALONE):
        for address in master.removeprefix(_STANDALONE).split(","):
            host, _, port_text = address.rpartition(":")
            if not host or not port_text.isdigit() or int(port_text) > 65_535:
                raise SparkError(
                    f"{master!r} is not a Spark master: {address!r} is not HOST:PORT, such as spark://10.0.0.7:7077"
                )
            found.append((host.strip("[]"), int(port_text)))
    return found


def prepare_spark() -> Java:
    """Set the environment variables for the first Spark session of this process, whoever starts it.

    Spark's workers then run this Python, unless PYSPARK_PYTHON is set, and Spark finds a Java.
    """
    return _prepare(sys.executable)


def _prepare(python: str) -> Java:
    java = check_spark()
    for name, value in _variables(java, python).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return java


def print_environment() -> None:
    """Print the variables of `prepare_spark` for a shell to evaluate, before `pyspark` or `spark-submit` is started."""
    for name, value in _variables(check_spark(), sys.executable).items():
        sys.stdout.write(f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n")


def _variables(java: Java, python: str) -> dict[str, str | None]:
    # Spark would take the first python3 on the path, which may lack our package.
    return {**java.environment, _PYTHON: os.environ.get(_PYTHON, python)}


def spark_session(
    master: str,
    *,
    name: str = "tailrace pipeline",
    jars: Path | None = None,
    packages: str | None = None,
    archives: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start a session.

    `jars` is a folder of jars to load, `packages` are coordinates that Spark downloads, `archives` is the archive for workers,
    and `conf` has settings of Spark, which go before ours.
    """
    _check_master(master)
    check_master_answers(master)
    submitted = submitted_settings()
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.streaming.minBatchesToRetain": "5",
        "spark.sql.streaming.stopTimeout": "10s",
        "spark.python.daemon.module": "tailrace.pipeline.daemon",
        # Over TCP the first bytes for each worker wait 40 ms for an acknowledgement.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING} {_JAVA_OPTIONS}",
    }
    if master.startswith("local"):
        # It renames files, which is atomic on a local disk. The server keeps the marks in any case.
        options["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    else:
        options["spark.sql.codegen.hugeMethodLimit"] = _MAX_METHOD_BYTES
        options.update({f"spark.executorEnv.{variable}": value for variable, value in _ALLOCATORS.items()})
    options = {**options, **submitted, **(conf or {}), "spark.app.name": name, "spark.master": master}
    if jars is not None:
        options["spark.jars"] = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    if packages:
        options["spark.jars.packages"] = packages
    if archives:
        options[_ARCHIVES[0]] = archive_uri(archives)
    python, environment = sys.executable, dict(_ALLOCATORS)
    if any(options.get(key, "").endswith(f"#{FOLDER}") for key in _ARCHIVES):
        # Each machine has its own Python; the driver's is the first of this name on its path.
        python = f"python{_version()}"
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        options[_WORKERS_PATH] = os.pathsep.join(filter(None, [f"./{FOLDER}", options.get(_WORKERS_PATH)]))
    _prepare(python)
    from pyspark.sql import SparkSession

    # Otherwise SPARK_API_MODE could make it a session of Spark Connect.
    builder = SparkSession.builder.config(map={**options, "spark.api.mode": "classic"})
    stderr = _JavaStderr()
    try:
        with _environment(environment):
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


def stop_session(session: "SparkSession") -> None:
    """Stop Spark. Does nothing if Java has ended, as it does when a signal to stop was sent to all processes of a group."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        session.stop()


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
            for line in without_broken_pipes(lines):
                with self._lock:
                    is_held = self._held is not None
                    if self._held is not None and len(self._held) < _MAX_HELD_LINES:
                        self._held.append(line.rstrip("\n"))
                if not is_held:
                    _print(line.rstrip("\n"))


def without_broken_pipes(lines: Iterable[str]) -> Iterator[str]:
    """Leave out the stack traces that PySpark prints for idle Python workers whose connection Java has closed."""
    trace: list[str] = []
    for line in lines:
        if trace or line.startswith("Traceback "):
            trace.append(line)
            if len(trace) < _MAX_HELD_LINES and (len(trace) == 1 or line.startswith(" ")):
                continue
            is_noise = line.startswith("BrokenPipeError") and any("pyspark/daemon.py" in each for each in trace)
            kept, trace = [] if is_noise else trace, []
            yield from kept
        else:
            yield line
    yield from trace


def _print(line: str) -> None:
    if sys.stderr is not None and not line.startswith(_NOISE):
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set PATH, and others that are not set yet, for Java and its children but not for other children of this process."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if before[name] is None or name == "PATH"})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
    archive = _OTHER_ARCHIVE.search(text)
    if archive is not None:
        return SparkError(
            f"{archive['python']}, the Python of Spark's workers, is {archive['found']}, and the archive is for"
            f" {archive['wanted']}. Set PYSPARK_PYTHON to such a Python that every machine has, or make the archive and run the"
            " pipeline with a Python like that of the workers"
        )
    module = _NO_MODULE.search(text)
    if module is not None and module["module"].partition(".")[0] in _REQUIRED_MODULES:
        return SparkError(
            f"{python}, the Python of Spark's workers, has no module {module['module']!r}. {_HOW_WORKERS_GET_IT}, or set"
            f" {_PYTHON} to a Python that has it there"
        )
    program = _NO_PROGRAM.search(text)
    if program is not None and Path(program["program"]).name == Path(python).name:
        return SparkError(
            f"Spark's workers have no Python {program['program']}. Set {_PYTHON} to a Python {_version()} that exists on every"
            f" machine that runs tasks; it needs no packages with an archive made by: tailrace pipeline package"
        )
    if _OTHER_PYTHON in text:
        return SparkError(
            f"{python}, the Python of Spark's workers, is of another version than the driver's, {_version()}. Set {_PYTHON} to"
            f" a Python {_version()} on every machine that runs tasks, or run the pipeline with the version that they have"
        )
    return None


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


if __name__ == "__main__":
    try:
        print_environment()
    except SparkError as error:
        sys.exit(f"tailrace: {error}")
