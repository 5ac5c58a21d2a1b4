"""Processes that the server starts beside itself: one for each source that it captures and for each shadow that it copies.

A process that ends is started again after a growing pause. All end with the server, whatever it dies of.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from tailrace.model.backoff import Backoff
from tailrace.model.clock import Clock
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import OverloadedError
from tailrace.model.parent_process import ENDS_WITH_PARENT
from tailrace.model.server_credentials import CREDENTIALS_ON_STDIN, ServerCredentials

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_STABLE_SECONDS = 60.0
_STOP_SECONDS = 5.0
_CHECK_SECONDS = 60.0
_MAX_LINE = 1_000

T = TypeVar("T")


class Supervised(Protocol[T]):
    """What has processes of its own, such as all sources."""

    what: str
    """What a process does: `the capture of source`."""

    @property
    def changed(self) -> asyncio.Event:
        """Set whenever `wanted` may have changed."""

    def wanted(self) -> Mapping[int, T]:
        """Return what a process is to run for, by its number."""

    def name(self, one: T) -> str:
        """Return the name of one of them."""

    def command(self, one: T) -> list[str]:
        """Return the arguments of `tailrace` for its process."""

    def needs_restart(self, before: T, now: T) -> bool:
        """Return whether its process must be started again to learn what has changed."""

    def note_exit(self, one: T, why: str) -> None:
        """Take note that its process has ended by itself."""


class ChildProcesses(Generic[T]):
    """Keeps a process for each thing that wants one."""

    def __init__(self, supervised: Supervised[T], clock: Clock, credentials: ServerCredentials | None = None) -> None:
        """Each process is given the credentials, by which it gets in at the server."""
        self._supervised = supervised
        self._credentials = credentials
        self._clock = clock
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Those whose processes have been told to end."""
        self._known: dict[int, T] = {}
        """What the processes were started with, or were told since."""
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            # It may be about to start something.
            await asyncio.wait((self._following,))
        for number in list(self._running):
            self._end(number)
        if self._ending:
            await asyncio.wait(self._ending)

    def run(self, number: int, one: T) -> None:
        """Start the process of one of them, unless it runs."""
        if number not in self._running:
            self._known[number] = one
            self._running[number] = asyncio.create_task(self._supervise(one))

    async def stop(self, number: int) -> None:
        """End the process of one of them. It is started again when what is wanted changes the next time, if it still is."""
        task = self._end(number)
        if task is not None:
            await asyncio.wait((task,))

    def _end(self, number: int) -> "asyncio.Task[None] | None":
        task = self._running.pop(number, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        return task

    async def _follow(self) -> None:
        """Start and stop processes as what is wanted changes."""
        supervised = self._supervised
        while True:
            supervised.changed.clear()
            wanted = supervised.wanted()
            for number in list(self._running):
                if number not in wanted or supervised.needs_restart(self._known[number], wanted[number]):
                    await self.stop(number)
                else:
                    self._known[number] = wanted[number]
            for number in wanted.keys() - self._running.keys():
                self.run(number, wanted[number])
            await supervised.changed.wait()

    async def _supervise(self, one: T) -> None:
        what, name = self._supervised.what, self._supervised.name(one)
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            began = self._clock.monotonic()
            try:
                last = await self._run(one)
            except OSError as error:
                last = f"the process can't be started: {error}"
            if self._clock.monotonic() - began > _STABLE_SECONDS:
                backoff.reset()
            pause = backoff.next_pause()
            self._supervised.note_exit(one, last)
            _log.warning("%s %r ended; it is started again in %.1f s: %s", what, name, pause, last)
            await asyncio.sleep(pause)

    async def _run(self, one: T) -> str:
        """Run the process of one of them until it ends, and return why it did."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tailrace",
            *self._supervised.command(one),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **ENDS_WITH_PARENT, **({} if self._credentials is None else CREDENTIALS_ON_STDIN)},
            start_new_session=True,
        )
        if self._credentials is not None and process.stdin is not None:
            # It fits into the buffer of the pipe, so there is nothing to wait for.
            process.stdin.write(self._credentials.line())
        try:
            last = await _log_lines(f"{self._supervised.what} {self._supervised.name(one)}", process)
        except asyncio.CancelledError:
            await _end(process)
            raise
        return last or f"the process ended with exit code {process.returncode}"


async def ask_process(module: str, action: str, asked: msgspec.Struct, what: str) -> list[ConnectionCheck]:
    """Let a process check something: `python -m module action`, which reads JSON and writes a list of checks.

    `what` names what it asks, for the error if that does not answer in time.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        action,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        answer, complaint = await asyncio.wait_for(process.communicate(msgspec.json.encode(asked)), _CHECK_SECONDS)
    except TimeoutError:
        raise OverloadedError(f"{what} did not answer within {_CHECK_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = complaint.decode(errors="replace").strip().splitlines()
        return [ConnectionCheck(action, "failed", lines[-1] if lines else f"exit code {process.returncode}", "")]
    return msgspec.json.decode(answer, type=list[ConnectionCheck])


async def _log_lines(label: str, process: asyncio.subprocess.Process) -> str:
    """Log what the process prints, until it ends. Return its last line."""
    last = ""
    while process.stderr is not None:
        try:
            line = await process.stderr.readline()
        except ValueError:
            # A line that is too long for the buffer was thrown away.
            continue
        if not line:
            break
        last = line.decode(errors="replace").strip()[:_MAX_LINE] or last
        _log.info("%s: %s", label, last)
    await process.wait()
    return last


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
