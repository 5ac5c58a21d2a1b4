"""The processes that copy shadows for the server: one `tailrace shadow run` for each, started again when it ends."""

import asyncio
from collections.abc import Mapping

import msgspec

from tailrace.broker.shadows.shadows import Shadows
from tailrace.child_processes import ChildProcesses, ask_process
from tailrace.model.clock import Clock
from tailrace.model.commit import Durability
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.server_credentials import ServerCredentials
from tailrace.model.shadow import Shadow, ShadowToCheck

_TOLD = ("throttle_bytes", "topics", "groups", "skipped", "phase", "producers", "fence", "fences", "note")
"""A process is told of these when it reports."""

_RELAXED = ConnectionCheck(
    "durability",
    "warning",
    "the durability of the server is relaxed: a power cut may take back records that are in the target already",
    "Start the server with --durability fsync before you cut over",
)


class ShadowProcesses:
    """Keeps a process for each shadow that the server copies, and asks the Kafkas of shadows."""

    what = "the copying of shadow"

    def __init__(
        self,
        shadows: Shadows,
        url: str,
        kafka: str,
        cluster_id: str,
        durability: Durability,
        clock: Clock,
        credentials: ServerCredentials | None = None,
    ) -> None:
        self._shadows = shadows
        self._url = url
        self._kafka = kafka
        self._cluster_id = cluster_id
        self._durability = durability
        self._credentials = credentials
        self._processes: ChildProcesses[Shadow] = ChildProcesses(self, clock, credentials)

    def start(self) -> None:
        self._shadows.kafkas = self
        self._processes.start()

    async def close(self) -> None:
        await self._processes.close()

    async def check(self, shadow: Shadow) -> list[ConnectionCheck]:
        """Ask the Kafka of a shadow whether it can be copied to, or from."""
        asked = ShadowToCheck(shadow=shadow, kafka=self._kafka, cluster_id=self._cluster_id, credentials=self._credentials)
        checks = await ask_process("tailrace.shadow", "check", asked, f"the Kafka at {shadow.bootstrap}")
        return [*checks, _RELAXED] if self._durability == "relaxed" and shadow.direction == "to" else checks

    @property
    def changed(self) -> asyncio.Event:
        return self._shadows.changed

    def wanted(self) -> Mapping[int, Shadow]:
        return {shadow.id: shadow for shadow in self._shadows if shadow.copied_by == "server" and shadow.is_copied}

    def name(self, shadow: Shadow) -> str:
        return shadow.name

    def command(self, shadow: Shadow) -> list[str]:
        return ["shadow", "run", shadow.name, "--server", self._url]

    def needs_restart(self, before: Shadow, now: Shadow) -> bool:
        return before != msgspec.structs.replace(now, **{name: getattr(before, name) for name in _TOLD})

    def note_exit(self, shadow: Shadow, why: str) -> None:
        self._shadows.note_exit(shadow, why)
