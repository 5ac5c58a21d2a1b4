"""What a scenario is, and what it plays on.

A scenario prepares its topic by the referee, a client that is known to work, so that what fails is what the scenario is about.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.compat.contract import Client, Incoming, Outgoing, Refused, Start
from tests.compat.process import ClientProcess

PARTITIONS = 4
HOUR_MS = 3_600_000
SOME_TIME_MS = 1_700_000_000_000

BEGINNING = Start("beginning")


class Stage(NamedTuple):
    """What a scenario plays on. Names of topics and groups are used by no other scenario."""

    client: ClientProcess
    """The client under test."""
    another: Callable[[], ClientProcess]
    """One more of the same."""
    referee: Client
    topic: str
    group: str
    volume: int
    """How many records make a lot of them."""
    members: int
    """How many consumers make a crowd."""

    def create(self, partitions: int = 1, **configs: str) -> None:
        self.referee.create_topic(self.topic, partitions, {name.replace("_", "."): value for name, value in configs.items()})

    def fill(self, *values: str, partition: int = 0) -> None:
        self.referee.produce(self.topic, [Outgoing(value=value.encode(), partition=partition) for value in values])

    def fill_hourly(self, count: int) -> None:
        """Record `n` is `n` hours younger than the first."""
        self.referee.produce(
            self.topic,
            [
                Outgoing(value=str(number).encode(), partition=0, timestamp_ms=SOME_TIME_MS + number * HOUR_MS)
                for number in range(count)
            ],
        )


class Scenario(NamedTuple):
    name: str
    title: str
    apis: str
    play: Callable[[Stage], None]
    transactional: bool = False


def values(records: list[Incoming]) -> list[str]:
    return ["" if each.value is None else each.value.decode() for each in records]


def refusal(act: Callable[[], object]) -> Refused:
    try:
        act()
    except Refused as refused:
        return refused
    raise AssertionError("it was not refused")
