"""What both ways in share: where records are decided on, and what follows when they are durable."""

from collections.abc import Callable

from tailrace.broker.commits.draft import Draft
from tailrace.broker.publishing.dedup import Dedup, Window
from tailrace.broker.publishing.producers import Producers
from tailrace.broker.publishing.record_checks import RecordChecks
from tailrace.broker.topics.live_topic import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.appends import TransactionalAppends
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

GONE = Offset(-1)
"""As the start of a partition: there is none any more."""

OnArrival = Callable[[PartitionId, int], None]
"""Called with a partition and the bytes that readers can see there from now on."""


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


class Windows:
    """The dedup windows that one decision looks into."""

    __slots__ = ("_dedup", "_draft", "_open")

    def __init__(self, dedup: Dedup, draft: Draft) -> None:
        self._dedup = dedup
        self._draft = draft
        self._open: dict[TopicId, tuple[LiveTopic, Window]] = {}

    def of(self, live: LiveTopic) -> Window:
        found = self._open.get(live.topic.id)
        if found is None:
            found = self._open[live.topic.id] = live, self._dedup.window(self._draft, live)
        return found[1]

    def close(self) -> None:
        for _, window in self._open.values():
            window.close()

    def count(self) -> None:
        """The draft is durable: what was found and forgotten in it counts."""
        for live, window in self._open.values():
            live.dedup_hits += window.hits
            live.dedup_evictions += window.evicted
