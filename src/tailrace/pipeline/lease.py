"""The time for which this process runs the router: from the lease that the server gives it to the day another one takes over.

A thread tells the server every other second that the process lives and how it does. Who hears that somebody else has taken over
must stop; it could publish nothing any more.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from types import TracebackType
from uuid import uuid4

import msgspec

from tailrace.model.errors import PipelineFencedError, TailraceError
from tailrace.model.pipeline import ROUTER, PipelineReport
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import PipelineError

_log = logging.getLogger("tailrace.pipeline")

_HEARTBEAT_SECONDS = 2.0
_HEARTBEAT_RETRY_SECONDS = 5.0
_LEASE_RETRY_SECONDS = 0.2
_ERROR_LENGTH = 1_000
_PATH = f"/api/pipelines/{ROUTER}"


class RouterLease:
    """`with tenure:` takes the lease, keeps it, and gives it back. `stopping` is set when it is lost."""

    def __init__(
        self,
        server: ServerAddress,
        stopping: threading.Event,
        *,
        retry_seconds: float,
        lease_wait_seconds: float,
        take_over: bool = False,
    ) -> None:
        self._server = server
        self._retry_seconds = retry_seconds
        self._lease_wait = lease_wait_seconds
        self._stopping = stopping
        self._take_over = take_over
        # Nobody else's, not even a later process's of the same number: who asks again after a lost answer is not refused.
        self._owner = f"process {os.getpid()} on {socket.gethostname()} ({uuid4().hex[:6]})"
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name="tailrace-heartbeat", daemon=True)
        self.epoch = 0
        self.report = PipelineReport()
        """What the server is told with the next beat."""
        self.loss: PipelineFencedError | None = None
        """Why it has ended early."""

    def __enter__(self) -> "RouterLease":
        self.epoch = self._lease()
        self._heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._heartbeat.join()
        if error is not None:
            self.report = msgspec.structs.replace(self.report, last_error=error_line(error))
        if self.loss is None:
            self._give_back()

    def _lease(self) -> int:
        """Wait for as long as the one before may still hold it: after a crash nobody has given it back."""
        deadline = time.monotonic() + self._lease_wait
        question = {"owner": self._owner, "take_over": self._take_over}
        with ServerConnection(self._server, self._retry_seconds, self._stopping) as connection:
            while True:
                try:
                    epoch: int = connection.ask("POST", f"{_PATH}/lease", question)["epoch"]
                except PipelineFencedError:
                    if time.monotonic() > deadline or self._stopping.wait(_LEASE_RETRY_SECONDS):
                        raise
                else:
                    return epoch

    def _give_back(self) -> None:
        try:
            with ServerConnection(self._server, _HEARTBEAT_RETRY_SECONDS) as connection:
                self._tell(connection)
                connection.ask("POST", f"{_PATH}/release", {"epoch": self.epoch})
        except TailraceError as error:
            _log.warning("the lease was not given back, the next pipeline waits for its end: %s", error)

    def _beat(self) -> None:
        with ServerConnection(self._server, _HEARTBEAT_RETRY_SECONDS, self._ended) as connection:
            while not self._ended.wait(_HEARTBEAT_SECONDS):
                try:
                    self._tell(connection)
                except PipelineFencedError as error:
                    self.loss = error
                    self._stopping.set()
                    return
                except TailraceError as error:
                    if not self._ended.is_set():
                        _log.warning("%s", error)

    def _tell(self, connection: ServerConnection) -> None:
        connection.ask("POST", f"{_PATH}/report", {"epoch": self.epoch, "report": msgspec.to_builtins(self.report)})


def report_failed_start(server: ServerAddress, error: PipelineError) -> None:
    """Let the server know why no router runs. It is not told while another one does, nor if it does not answer."""
    with (
        contextlib.suppress(PipelineError, TailraceError),
        RouterLease(server, threading.Event(), retry_seconds=0, lease_wait_seconds=0),
    ):
        raise error


def error_line(error: BaseException) -> str:
    """What a person can read of it. Spark repeats the trace of every process that an error came through."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    line = said[-1] if said else causes[-1] if causes else str(error).strip().partition("\n")[0]
    return (line or type(error).__name__)[:_ERROR_LENGTH]
