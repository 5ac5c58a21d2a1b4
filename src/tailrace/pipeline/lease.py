"""The router's lease: the server lets one process at a time run the router.

A thread sends a heartbeat with a report every two seconds. A router that learns that another one has taken over must stop; it
can publish nothing any more.
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

from tailrace.api.pipelines import ReleaseLeaseBody, ReportBody, ReportResponse, TakeLeaseBody
from tailrace.model.errors import PipelineFencedError, TailraceError
from tailrace.model.pipeline import ROUTER, Latency, Lease, PipelineReport
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import PipelineError

_log = logging.getLogger("tailrace.pipeline")

_HEARTBEAT_SECONDS = 2.0
_HEARTBEAT_RETRY_SECONDS = 5.0
_LEASE_RETRY_SECONDS = 0.2
_MAX_ERROR_CHARACTERS = 1_000
_PATH = f"/api/pipelines/{ROUTER}"


class RouterLease:
    """Takes the lease, keeps it, and releases it at the end of a `with` block. `stopping` is set when the lease is lost."""

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
        # Unique even among processes with the same id: a request that is repeated after a lost response is not refused.
        self._owner = f"process {os.getpid()} on {socket.gethostname()} ({uuid4().hex[:6]})"
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._send_heartbeats, name="tailrace-heartbeat", daemon=True)
        self.epoch = 0
        self.latency: Latency = "batch"
        """What ALTER PIPELINE had set at the last heartbeat."""
        self.report = PipelineReport()
        """What the next heartbeat reports."""
        self.loss: PipelineFencedError | None = None
        """The error if the lease was lost."""

    def __enter__(self) -> "RouterLease":
        lease = self._acquire()
        self.epoch, self.latency = lease.epoch, lease.latency
        self._heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._heartbeat.join()
        if error is not None:
            self.report = msgspec.structs.replace(self.report, last_error=error_line(error))
        if self.loss is None:
            self._release()

    def _acquire(self) -> Lease:
        """Take the lease, after waiting until that of a crashed router has expired."""
        deadline = time.monotonic() + self._lease_wait
        body = TakeLeaseBody(self._owner, self._take_over)
        with ServerConnection(self._server, self._retry_seconds, self._stopping) as connection:
            while True:
                try:
                    return connection.ask(f"{_PATH}/lease", body, Lease)
                except PipelineFencedError:
                    if time.monotonic() > deadline or self._stopping.wait(_LEASE_RETRY_SECONDS):
                        raise

    def _release(self) -> None:
        try:
            with ServerConnection(self._server, _HEARTBEAT_RETRY_SECONDS) as connection:
                self._report(connection)
                connection.ask(f"{_PATH}/release", ReleaseLeaseBody(self.epoch), type(None))
        except TailraceError as error:
            _log.warning("the lease was not released, so the next pipeline waits until it expires: %s", error)

    def _send_heartbeats(self) -> None:
        with ServerConnection(self._server, _HEARTBEAT_RETRY_SECONDS, self._ended) as connection:
            while not self._ended.wait(_HEARTBEAT_SECONDS):
                try:
                    self._report(connection)
                except PipelineFencedError as error:
                    self.loss = error
                    self._stopping.set()
                    return
                except TailraceError as error:
                    if not self._ended.is_set():
                        _log.warning("%s", error)

    def _report(self, connection: ServerConnection) -> None:
        self.latency = connection.ask(f"{_PATH}/report", ReportBody(self.epoch, self.report), ReportResponse).latency


def report_failed_start(server: ServerAddress, error: PipelineError | TailraceError) -> None:
    """Report to the server why no router runs. Does nothing if another one runs or the server does not answer."""
    with (
        contextlib.suppress(PipelineError, TailraceError),
        RouterLease(server, threading.Event(), retry_seconds=0, lease_wait_seconds=0),
    ):
        raise error


def error_line(error: BaseException) -> str:
    """Return the one line of an error that says what happened. Spark repeats the stack trace of every process on the way."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    line = raised[-1] if raised else causes[-1] if causes else str(error).strip().partition("\n")[0]
    return (line or type(error).__name__)[:_MAX_ERROR_CHARACTERS]
