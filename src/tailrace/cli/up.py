"""`tailrace up`: a server and its pipeline, started, watched and stopped together."""

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
from typing import Annotated, NamedTuple

import typer

from tailrace.cli.errors import ExitCode
from tailrace.cli.serve import ACCEPT_LOSS_HELP
from tailrace.cli.status_lines import print_status
from tailrace.model.parent_process import ENDS_WITH_PARENT

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
        typer.Option("--config", metavar="FILE", help="Settings in TOML; flags win over it."),
    ] = None,
    accept_loss_after: Annotated[
        int | None, typer.Option("--accept-loss-after", metavar="POSITION", min=0, help=ACCEPT_LOSS_HELP)
    ] = None,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
) -> None:
    """Run a server and its pipeline together, in one terminal.

    Each line says which of the two it comes from. The pipeline is started again
    if it ends; where Spark or Java is missing, the server runs without it and
    changes wait in the log. Ctrl-C stops both.

    [bold]Examples[/]
    tailrace up
    tailrace up --data /var/lib/tailrace --http 127.0.0.1:9000
    """
    from tailrace.pipeline.connection import ServerAddress
    from tailrace.pipeline.errors import PipelineError
    from tailrace.pipeline.lease import report_failed_start
    from tailrace.pipeline.session import check_spark

    command = [sys.executable, "-m", "tailrace"]
    # What is not said here is left to the file, if there is one.
    folder = _DATA if data is None and config is None else data
    said = {
        "--data": folder,
        "--http": http,
        "--kafka": kafka,
        "--config": config,
        "--accept-loss-after": accept_loss_after,
    }
    serve = [*command, "serve", *(word for flag, value in said.items() if value is not None for word in (flag, str(value)))]
    supervisor = Supervisor(_print_line)
    # A terminal that is closed stops both in order, too, unless `nohup` says otherwise.
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for number in (signal.SIGTERM, signal.SIGINT, *hangup):
        signal.signal(number, lambda *_: supervisor.stop())
    ready = supervisor.start(ManagedProcess(_SERVER, serve, is_essential=True), until=_READY)
    if ready is not None:
        # As it says itself: a port of 0 is known only now.
        url = ready.partition(_READY)[2].partition(",")[0]
        try:
            check_spark(master)
        except PipelineError as error:
            _print_line(_PIPELINE, f"not started: {error}. Until it runs, changes wait in the log")
            report_failed_start(ServerAddress(url), error)
        else:
            route = [*command, "pipeline", "--server", url, "--master", master]
            supervisor.start(ManagedProcess(_PIPELINE, route, is_essential=False))
    code = supervisor.run()
    if code:
        raise typer.Exit(code if code > 0 else ExitCode.REFUSED)


def _print_line(part: str, line: str) -> None:
    print_status(f"{part:>8} | {line}")


_STOP_SECONDS = 14.0
"""Of one part, so that two are stopped within half a minute."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_STEADY_SECONDS = 60.0
"""A part that ran so long has not failed at its start; the next pause is short again."""

PrintLine = Callable[[str, str], None]


class ManagedProcess(NamedTuple):
    name: str
    command: Sequence[str]
    is_essential: bool


class Supervisor:
    def __init__(self, say: PrintLine) -> None:
        self._say = say
        self._running: list[_RunningProcess] = []
        self._ended: queue.Queue[_RunningProcess | None] = queue.Queue()

    def start(self, part: ManagedProcess, until: str | None = None) -> str | None:
        """Start it. With `until`, wait for the line that holds this text and return it, or `None` when it ended without one."""
        running = _RunningProcess(part, self._say, self._ended, until)
        self._running.append(running)
        running.start()
        running.ready.wait()
        return running.ready_line

    def stop(self) -> None:
        """Called by a signal handler: only leaves word."""
        self._ended.put(None)

    def run(self) -> int:
        """Until a stop or the end of an essential part, whose exit code is returned."""
        code = 0
        while True:
            ended = self._ended.get()
            if ended is None:
                break
            if ended.part.is_essential:
                code = ended.code
                self._say(ended.part.name, f"ended with exit code {code}; stopping the rest")
                break
            pause = ended.pause()
            self._say(ended.part.name, f"ended with exit code {ended.code}; starting it again in {pause:g} s")
            again = threading.Timer(pause, ended.start)
            again.daemon = True
            again.start()
        for running in reversed(self._running):
            running.stop()
            # What an essential part says at its end is known only now.
            code = code or (running.code if running.part.is_essential else 0)
        return code


class _RunningProcess:
    def __init__(
        self, part: ManagedProcess, say: PrintLine, ended: "queue.Queue[_RunningProcess | None]", until: str | None
    ) -> None:
        self.part = part
        self.ready = threading.Event()
        self.ready_line: str | None = None
        self.code = 0
        self._say = say
        self._ended = ended
        self._until = until
        self._started_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
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
            # A session of its own, so that Ctrl-C in the terminal reaches only the supervisor, which stops the parts in order.
            self._process = subprocess.Popen(  # noqa: S603
                self.part.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, **ENDS_WITH_PARENT},
            )
        self._following = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._following.start()

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
                self._say(self.part.name, f"not finished after {_STOP_SECONDS:g} s; ended")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        # Its last words belong into the log. What it left behind may keep the pipe open, so not for ever.
        self._following.join(1.0)
        self.code = process.returncode

    def pause(self) -> float:
        """How long to wait before the next start."""
        if time.monotonic() - self._started_at > _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return pause

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            self._say(self.part.name, line.rstrip("\n"))
            if self._until is not None and self._until in line:
                self.ready_line = line
                self.ready.set()
        self.code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.ready.set()
        if not self._is_stopping:
            self._ended.put(self)
