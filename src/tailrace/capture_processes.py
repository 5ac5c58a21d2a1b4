"""The processes that capture sources for the server: one for each source, started again when it ends.

They are processes of their own because a driver for PostgreSQL and the encoding of events would take turns from the event loop,
and because `tailrace capture` on another machine is the same program.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from tailrace.broker.sources.sources import Sources
from tailrace.child_processes import ChildProcesses, ask_process
from tailrace.model.clock import Clock
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.server_credentials import ServerCredentials
from tailrace.model.source import Source


class CaptureProcesses:
    """Keeps a process for each source that the server captures, and asks databases."""

    what = "the capture of source"

    def __init__(self, sources: Sources, url: str, clock: Clock, credentials: ServerCredentials | None = None) -> None:
        self._sources = sources
        self._url = url
        self._processes: ChildProcesses[Source] = ChildProcesses(self, clock, credentials)

    def start(self) -> None:
        self._sources.databases = self
        self._processes.start()

    async def close(self) -> None:
        await self._processes.close()

    async def check(self, source: Source) -> list[ConnectionCheck]:
        """Ask the database of a source whether it can be captured."""
        return await self._ask("check", source)

    async def release(self, source: Source) -> list[ConnectionCheck]:
        """Stop to capture a source, and drop its slot and its publication."""
        await self._processes.stop(source.id)
        checks = await self._ask("release", source)
        if any(check.result == "failed" for check in checks):
            self._processes.run(source.id, source)
        return checks

    @property
    def changed(self) -> asyncio.Event:
        return self._sources.changed

    def wanted(self) -> Mapping[int, Source]:
        return {source.id: source for source in self._sources if source.captured_by == "server"}

    def name(self, source: Source) -> str:
        return source.name

    def command(self, source: Source) -> list[str]:
        return ["capture", source.name, "--server", self._url]

    def needs_restart(self, before: Source, now: Source) -> bool:
        # A capture has set these itself, or is told of them when it reports.
        told = {name: getattr(before, name) for name in ("system_id", "timeline", "wanted", "resync")}
        return before != msgspec.structs.replace(now, **told) or (now.resync and not before.resync)

    def note_exit(self, source: Source, why: str) -> None:
        self._sources.note_exit(source, why)

    async def _ask(self, action: str, source: Source) -> list[ConnectionCheck]:
        return await ask_process("tailrace.capture", action, source, f"the database of source {source.name!r}")
