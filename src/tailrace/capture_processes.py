"""The processes that capture sources for the server: one for each source, started again when it ends.

They are processes of their own because a driver for PostgreSQL and the encoding of events would take turns from the event loop,
and because `tailrace capture` on another machine is the same program. They end with the server, whatever it dies of.
"""

import asyncio
import contextlib
import logging
import os
import sys

import msgspec

from tailrace.broker.sources.sources import Sources
from tailrace.model.backoff import Backoff
from tailrace.model.clock import Clock
from tailrace.model.errors import OverloadedError
from tailrace.model.ids import SourceId
from tailrace.model.parent_process import ENDS_WITH_PARENT
from tailrace.model.source import Source, SourceCheck

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_STABLE_SECONDS = 60.0
_STOP_SECONDS = 5.0
_CHECK_SECONDS = 60.0
_MAX_LINE = 1_000


class CaptureProcesses:
    """Keeps a process for each source that the server captures."""

    def __init__(self, sources: Sources, url: str, clock: Clock) -> None:
        self._sources = sources
        self._url = url
        self._clock = clock
        self._running: dict[SourceId, asyncio.Task[None]] = {}
        self._captured: dict[SourceId, Source] = {}
        """The definitions that the processes were started with."""
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sources.databases = self
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(*(self._stop(source_id) for source_id in list(self._running)))

    async def check(self, source: Source) -> list[SourceCheck]:
        """Ask the database of a source whether it can be captured."""
        return await self._ask("check", source)

    async def release(self, source: Source) -> list[SourceCheck]:
        """Stop to capture a source, and drop its slot and its publication."""
        await self._stop(source.id)
        checks = await self._ask("release", source)
        if any(check.result == "failed" for check in checks):
            self._start(source)
        return checks

    async def _follow(self) -> None:
        """Start and stop processes as sources are created and dropped."""
        while True:
            self._sources.changed.clear()
            wanted = {source.id: source for source in self._sources if source.captured_by == "server"}
            for source_id in list(self._running):
                if source_id not in wanted or _is_altered(self._captured[source_id], wanted[source_id]):
                    await self._stop(source_id)
                else:
                    self._captured[source_id] = wanted[source_id]
            for source_id in wanted.keys() - self._running.keys():
                self._start(wanted[source_id])
            await self._sources.changed.wait()

    def _start(self, source: Source) -> None:
        if source.id not in self._running:
            self._captured[source.id] = source
            self._running[source.id] = asyncio.create_task(self._supervise(source))

    async def _stop(self, source_id: SourceId) -> None:
        task = self._running.pop(source_id, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _supervise(self, source: Source) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            began = self._clock.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tailrace",
                "capture",
                source.name,
                "--server",
                self._url,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **ENDS_WITH_PARENT},
                start_new_session=True,
            )
            try:
                last = await self._log_lines(source, process)
            except asyncio.CancelledError:
                await _end(process)
                raise
            if self._clock.monotonic() - began > _STABLE_SECONDS:
                backoff.reset()
            pause = backoff.next_pause()
            self._sources.note_exit(source, last or f"the capture ended with exit code {process.returncode}")
            _log.warning("the capture of source %r ended; it is started again in %.1f s: %s", source.name, pause, last)
            await asyncio.sleep(pause)

    async def _log_lines(self, source: Source, process: asyncio.subprocess.Process) -> str:
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
            _log.info("capture of %s: %s", source.name, last)
        await process.wait()
        return last

    async def _ask(self, what: str, source: Source) -> list[SourceCheck]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tailrace.capture",
            what,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            answer, complaint = await asyncio.wait_for(process.communicate(msgspec.json.encode(source)), _CHECK_SECONDS)
        except TimeoutError:
            raise OverloadedError(
                f"the database of source {source.name!r} did not answer within {_CHECK_SECONDS:g} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines()
            return [SourceCheck("capture", "failed", lines[-1] if lines else f"exit code {process.returncode}", "")]
        return msgspec.json.decode(answer, type=list[SourceCheck])


def _is_altered(before: Source, now: Source) -> bool:
    """Return whether a capture must be started again to know what ALTER SOURCE has set."""
    # A capture has set these itself, or is told of them when it reports.
    told = {name: getattr(before, name) for name in ("system_id", "timeline", "wanted", "resync")}
    return before != msgspec.structs.replace(now, **told) or (now.resync and not before.resync)


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
