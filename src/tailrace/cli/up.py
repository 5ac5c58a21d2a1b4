"""`tailrace up`: a server and its pipeline, started, supervised and stopped together."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tailrace.cli.errors import ExitCode
from tailrace.cli.pipeline import ArchivesOption, JarsOption, LatencyOption, PackagesOption, check_connector_if_needed
from tailrace.cli.serve import ACCEPT_LOSS_HELP
from tailrace.cli.status_lines import print_status
from tailrace.model.backoff import Backoff
from tailrace.model.parent_process import ENDS_WITH_PARENT

if TYPE_CHECKING:
    from tailrace.cli.settings import PipelineSection
    from tailrace.model.server_credentials import ServerCredentials

_SERVER = "server"
_PIPELINE = "pipeline"
_READY = "is ready at "
_DATA = Path("./data")


def up(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder that holds everything, by default ./data.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="HTTP listener, by default 127.0.0.1:8080.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Kafka listener, by default 127.0.0.1:9092.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings in TOML; flags override them."),
    ] = None,
    accept_loss_after: Annotated[
        int | None, typer.Option("--accept-loss-after", metavar="POSITION", min=0, help=ACCEPT_LOSS_HELP)
    ] = None,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
    latency: LatencyOption = None,
    jars: JarsOption = None,
    packages: PackagesOption = None,
    archives: ArchivesOption = None,
) -> None:
    """Run a server and its pipeline together, in one terminal.

    Each line of output is prefixed with the process that printed it. The
    pipeline is restarted if it ends; without what it needs (Spark, Java, and
    for real time the Kafka connector), the server runs alone and changes wait
    in the log. Ctrl-C stops both.

    [bold]Examples[/]
    tailrace up
    tailrace up --data /var/lib/tailrace --http 127.0.0.1:9000
    tailrace up --latency realtime --jars connector/
    """
    from tailrace.cli.settings import resolve_pipeline
    from tailrace.model.errors import ConfigurationError
    from tailrace.pipeline.connection import ServerAddress
    from tailrace.pipeline.errors import PipelineError
    from tailrace.pipeline.lease import report_failed_start
    from tailrace.pipeline.session import check_spark

    command = [sys.executable, "-m", "tailrace"]
    # Flags that are not given are left to the configuration file, if there is one.
    folder = _DATA if data is None and config is None else data
    flags = {
        "--data": folder,
        "--http": http,
        "--kafka": kafka,
        "--config": config,
        "--accept-loss-after": accept_loss_after,
    }
    serve = [*command, "serve", *(word for flag, value in flags.items() if value is not None for word in (flag, str(value)))]
    credentials = _credentials(config, folder)
    supervisor = Supervisor(_print_line, credentials)
    # Closing the terminal also stops both in order, unless it runs under `nohup`.
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for number in (signal.SIGTERM, signal.SIGINT, *hangup):
        signal.signal(number, lambda *_: supervisor.stop())
    ready = supervisor.start(ManagedProcess(_SERVER, serve, is_essential=True), until=_READY)
    if ready is not None:
        # The ready line has the real port, if port 0 was given.
        url = ready.partition(_READY)[2].partition(",")[0]
        try:
            check_spark(master)
            # The server has read the same file.
            section = resolve_pipeline(config, latency=latency, jars=jars, packages=packages, archives=archives)
            check_connector_if_needed(section)
        except (PipelineError, ConfigurationError) as error:
            _print_line(_PIPELINE, f"not started: {error}. Until it runs, changes wait in the log")
            report_failed_start(ServerAddress(url), error)
        else:
            route = [*command, "pipeline", "--server", url, "--master", master, *_flags(section)]
            supervisor.start(ManagedProcess(_PIPELINE, route, is_essential=False))
    code = supervisor.run()
    if code:
        raise typer.Exit(code if code > 0 else ExitCode.REFUSED)


def _credentials(config: Path | None, folder: Path | None) -> "ServerCredentials | None":
    """Return what the pipeline gets in at the server with, if that asks or speaks TLS."""
    from tailrace.cli.settings import read_configuration
    from tailrace.model.errors import ConfigurationError
    from tailrace.model.server_credentials import CHILD_CERTIFICATE, ServerCredentials, new_token

    if config is None:
        return None
    try:
        configuration = read_configuration(config)
    except ConfigurationError:
        # The server reads the same file, and says what is wrong.
        return None
    security = configuration.security
    if security.authentication == "off" and security.tls_certificate is None:
        return None
    certificate = None if security.tls_certificate is None else str(Path(security.tls_certificate).absolute())
    shown = None
    if security.client_certificates == "required":
        # The server has made it when it is ready.
        shown = str((folder or Path(configuration.server.data or ".")).absolute() / CHILD_CERTIFICATE)
    credentials = ServerCredentials(new_token(), certificate, client_certificate=shown)
    # For what this process itself asks the server.
    credentials.enter_environment()
    return credentials


def _flags(section: "PipelineSection") -> list[str]:
    """Return the settings of the pipeline as flags."""
    flags = {
        "--latency": section.latency,
        "--jars": section.jars,
        "--packages": section.packages,
        "--archives": section.archives,
    }
    return [word for flag, value in flags.items() if value is not None for word in (flag, value)]


def _print_line(name: str, line: str) -> None:
    print_status(f"{name:>8} | {line}")


_STOP_SECONDS = 14.0
"""How long one process may take to stop, so that both stop within half a minute."""
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0
_STABLE_SECONDS = 60.0
"""A process that ran this long did not fail at its start; the next pause is short again."""

PrintLine = Callable[[str, str], None]


class ManagedProcess(NamedTuple):
    name: str
    command: Sequence[str]
    is_essential: bool


class Supervisor:
    """Runs processes together. If an essential one ends, all are stopped.

    Any other process is started again, after a pause that grows while it keeps failing. Processes are stopped in the reverse
    order of their start, each with time to finish. If the supervisor itself is killed, they end by themselves
    (`model/parent_process.py`).
    """

    def __init__(self, print_line: PrintLine, credentials: "ServerCredentials | None" = None) -> None:
        """Each process is given the credentials: one is to accept them, the others are to show them."""
        self._print_line = print_line
        self._credentials = credentials
        self._running: list[_RunningProcess] = []
        self._ended: queue.Queue[_RunningProcess | None] = queue.Queue()

    def start(self, managed: ManagedProcess, until: str | None = None) -> str | None:
        """Start a process. With `until`, wait for the line that has this text and return it; `None` if it ended without it."""
        running = _RunningProcess(managed, self._print_line, self._ended, until, self._credentials)
        self._running.append(running)
        running.start()
        running.ready.wait()
        return running.ready_line

    def stop(self) -> None:
        """Make `run` stop everything. Only puts a message into a queue, so a signal handler may call it."""
        self._ended.put(None)

    def run(self) -> int:
        """Run until `stop` or the end of an essential process, and return that process's exit code."""
        code = 0
        while True:
            ended = self._ended.get()
            if ended is None:
                break
            if ended.managed.is_essential:
                code = ended.code
                self._print_line(ended.managed.name, f"ended with exit code {code}; stopping the rest")
                break
            pause = ended.pause()
            self._print_line(ended.managed.name, f"ended with exit code {ended.code}; starting it again in {pause:g} s")
            again = threading.Timer(pause, ended.start)
            again.daemon = True
            again.start()
        for running in reversed(self._running):
            running.stop()
            # The exit code of an essential process is known only now.
            code = code or (running.code if running.managed.is_essential else 0)
        return code


class _RunningProcess:
    def __init__(
        self,
        managed: ManagedProcess,
        print_line: PrintLine,
        ended: "queue.Queue[_RunningProcess | None]",
        until: str | None,
        credentials: "ServerCredentials | None",
    ) -> None:
        self.managed = managed
        self.ready = threading.Event()
        self.ready_line: str | None = None
        self.code = 0
        self._print_line = print_line
        self._ended = ended
        self._until = until
        self._credentials = credentials
        self._started_at = 0.0
        # Without randomness, because only this process comes back.
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, lambda: 1.0)
        self._starting = threading.Lock()
        self._is_stopping = False
        self._process: subprocess.Popen[str] | None = None
        if until is None:
            self.ready.set()

    def start(self) -> None:
        with self._starting:
            if self._is_stopping:
                return
            self._started_at = time.monotonic()
            # Its own session, so that Ctrl-C in the terminal reaches only the supervisor, which stops the processes in order.
            self._process = subprocess.Popen(  # noqa: S603
                self.managed.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env=self._environment(),
            )
            if self._credentials is not None and self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.write(self._credentials.line().decode())
                    self._process.stdin.flush()
        self._following = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._following.start()

    def _environment(self) -> dict[str, str]:
        if self._credentials is None:
            return {**os.environ, **ENDS_WITH_PARENT}
        from tailrace.model.server_credentials import CREDENTIALS_ON_STDIN, VARIABLES

        # Others can see what is in the environment of a process at its start.
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        return {**kept, **ENDS_WITH_PARENT, **CREDENTIALS_ON_STDIN}

    def stop(self) -> None:
        with self._starting:
            self._is_stopping = True
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._print_line(self.managed.name, f"not stopped after {_STOP_SECONDS:g} s; ended by force")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        # Wait for its last lines, but not for ever: a child that it left behind may keep the pipe open.
        self._following.join(1.0)
        self.code = process.returncode

    def pause(self) -> float:
        """Return how long to wait before the next start."""
        if time.monotonic() - self._started_at > _STABLE_SECONDS:
            self._backoff.reset()
        return self._backoff.next_pause()

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            self._print_line(self.managed.name, line.rstrip("\n"))
            if self._until is not None and self._until in line:
                self.ready_line = line
                self.ready.set()
        self.code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.ready.set()
        if not self._is_stopping:
            self._ended.put(self)
