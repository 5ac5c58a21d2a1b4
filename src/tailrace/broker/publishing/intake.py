"""What both ways in share: where records are decided on, and what follows when they are durable."""

from collections.abc import Callable
from typing import Protocol

from tailrace.broker.publishing.dedup import Dedup
from tailrace.broker.publishing.producers import Producers
from tailrace.broker.publishing.record_checks import RecordChecks
from tailrace.broker.topics.live_topic import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.appends import TransactionalAppends
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.record import Appended
from tailrace.store.contract import Store

GONE = Offset(-1)
"""As the start of a partition: there is none any more."""

Outcome = Appended | TailraceError
"""What became of one batch."""

OnArrival = Callable[[PartitionId, int], None]
"""Called with a partition and the bytes that readers can see there from now on."""


class Waiter(Protocol):
    """Whoever sent a batch. Told once, on the event loop, while others wait for their turn: it must be quick."""

    def told(self, outcome: Outcome) -> None:
        """What became of the batch."""

    def failed(self, error: BaseException) -> None:
        """The commit failed."""


class Intake:
    def __init__(
        self,
        store: Store,
        topics: Topics,
        producers: Producers,
        dedup: Dedup,
        joiner: TransactionalAppends,
        clock: Clock,
        limits: Limits,
        checks: RecordChecks,
        on_arrival: OnArrival,
    ) -> None:
        self.store = store
        self.topics = topics
        self.producers = producers
        self.dedup = dedup
        self.joiner = joiner
        self.clock = clock
        self.limits = limits
        self.checks = checks
        self._on_arrival = on_arrival

    def log_start(self, partition: PartitionId) -> Offset:
        """For whoever appended something there."""
        try:
            return self.store.bounds(partition).start
        except TailraceError:
            # Deleted since. The records were taken, and that is what their sender must hear.
            return GONE

    def arrived(self, live: LiveTopic, partition: PartitionId, records: int, size: int) -> None:
        live.messages_in += records
        live.bytes_in += size
        self._on_arrival(partition, size)
