"""A broker with an event loop of its own, so that several can be measured in turn within one process."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import uvloop

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.embedded import EmbeddedStore

T = TypeVar("T")


class LoopedBroker:
    """On a new folder, `relaxed`, with room for so many topics and groups."""

    def __init__(self, folder: Path, topics: int = 1, groups: int = 1) -> None:
        self.folder = folder
        limits = msgspec.structs.replace(
            DEFAULT_LIMITS, topics=max(topics, DEFAULT_LIMITS.topics), groups=max(groups, DEFAULT_LIMITS.groups)
        )
        self.store = EmbeddedStore.open(folder, durability="relaxed", limits=limits)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.broker = Broker(self.store, SystemClock(), limits)

    def __enter__(self) -> Self:
        self.run(self.broker.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.broker.close())
        self._runner.close()
        self.store.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)
