"""The broker: the rules of topics, over one store. No sockets, no disk of its own, no clock but the one it is given.

It runs on one event loop; every method is called there. Surfaces see this class and the values of `model`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar
from uuid import UUID, uuid4

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Committer
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.pending_offsets import PendingOffsets
from tailrace.broker.groups.registry import GroupNames, GroupRegistry
from tailrace.broker.groups.removal import GroupRemoval
from tailrace.broker.identity import identity_of
from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.jobs import BackgroundJob, BackgroundJobs
from tailrace.broker.metrics import BrokerCollector, Sources
from tailrace.broker.payloads import PayloadReferences, Payloads, PayloadSweep
from tailrace.broker.pipelines.pipelines import Pipelines
from tailrace.broker.producers.producers import Producers
from tailrace.broker.producers.publishers import Publishers
from tailrace.broker.publishing.append import Appender, PendingOutcomes
from tailrace.broker.publishing.context import AppendCallback, PublishContext
from tailrace.broker.publishing.dedup import Deduplication
from tailrace.broker.publishing.publish import Publisher
from tailrace.broker.publishing.snowflake import Snowflakes
from tailrace.broker.publishing.validation import RecordChecks
from tailrace.broker.queues.queues import Queues
from tailrace.broker.queues.redrive import Redrives
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.reading.answers import AnswerMemory, ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.reading.consume import Consumers, Positions
from tailrace.broker.reading.fetch import Fetcher, WaitingFetches
from tailrace.broker.reading.reader import PayloadExpansion, Reader
from tailrace.broker.reading.scan import Scanner, TopicScan
from tailrace.broker.reading.unchecked import UncheckedBatches
from tailrace.broker.retention import Retention
from tailrace.broker.routes.routes import Routes, Snapshots
from tailrace.broker.routes.routing import Routing
from tailrace.broker.settings import DEFAULT_BROKER_SETTINGS, BrokerSettings
from tailrace.broker.subscriptions.subscriptions import Subscriptions
from tailrace.broker.subscriptions.tail import LogTail
from tailrace.broker.tables.change_log import ChangeLog
from tailrace.broker.tables.checkpoints import TableCheckpoints
from tailrace.broker.tables.tables import TableDefinitions
from tailrace.broker.times.oldest_times import OldestTimes
from tailrace.broker.times.survey import Survey
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.transactions import Transactions
from tailrace.model.clock import Clock
from tailrace.model.consume import PartitionOffset
from tailrace.model.fetch import CommittedBatches, Isolation, PartitionBatches, PartitionFetch, PartitionRecords
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.pipeline import ROUTER, PipelineStatus
from tailrace.model.record import Message, NumberedPublish, Published, RawBatch
from tailrace.store.contract import Store

P = ParamSpec("P")
T = TypeVar("T")


class Broker:
    """Puts the parts together. The store stays with whoever opened it, and is closed after the broker."""

    def __init__(
        self, store: Store, clock: Clock, limits: Limits = DEFAULT_LIMITS, settings: BrokerSettings = DEFAULT_BROKER_SETTINGS
    ) -> None:
        self._store = store
        self.cluster_id = ""
        """The name of this log, known from the start on."""
        self._committer = Committer(store, limits)
        self._references = PayloadReferences(store)
        self._expansion = PayloadExpansion(store, self._references, limits)
        self.threads = ReadThreads(limits)
        self._reader = Reader(store, self._expansion, self.threads)
        self.topics = Topics(store, self._committer, clock, limits, self._partition_gone, self._check_droppable)
        stable = StableOffsets()
        aborted = AbortedTransactions(store)
        self._waiting_fetches = WaitingFetches(stable, limits)
        self.unchecked = UncheckedBatches(store, self.threads, limits)
        self._fetcher = Fetcher(
            store, self._reader, self.topics, stable, aborted, self._waiting_fetches, self.unchecked, limits
        )
        self.answers = AnswerMemory(limits)
        self._committed = CommittedReader(self._fetcher, self.threads, self.topics, self.answers, limits)
        self._scanner = Scanner(store, self._expansion, stable, aborted)
        self.producers = Producers(store, self._committer, clock, limits)
        group_names = GroupNames(limits)
        pending = PendingOffsets(store)
        self.offsets = GroupOffsets(store, self._committer, self.topics, group_names, pending, clock, limits)
        self._live_groups = GroupRegistry(group_names, limits)
        self.groups = GroupCoordinator(
            store, self._committer, self._live_groups, self.offsets, group_names, clock, limits, settings
        )
        self.group_removal = GroupRemoval(self._live_groups, self.offsets, group_names, clock, settings)
        self.positions = Positions(store, self.threads, self.topics, stable, limits)
        self.consumers = Consumers(self.topics, self.positions, self.offsets, self.groups, self._committed, limits)
        self.subscriptions = Subscriptions(
            store, self._reader, LogTail(store, self._committer, self.topics, limits), stable, aborted, self.answers, limits
        )
        self._transactions = Transactions(
            store,
            self._committer,
            self.topics,
            self.producers,
            self.offsets,
            group_names,
            pending,
            stable,
            aborted,
            clock,
            limits,
            self._stabilized,
        )
        self.transactions = self._transactions.coordinator
        self.transaction_queries = self._transactions.queries
        self._dedup = Deduplication(store, self._committer, self.topics, clock, limits)
        self._snowflakes = Snowflakes(clock, settings.node)
        joiner = self._transactions.joiner
        self._checks = RecordChecks(limits)
        context = PublishContext(
            store, self.topics, self.producers, self._dedup, joiner, clock, limits, self._checks, self._arrived
        )
        self.queues = Queues(store, self._committer, self.topics, self._committed, context, clock, limits)
        self.redrives = Redrives(context, self._committer, self._committed)
        self._appender = Appender(context, self._committer)
        self._publishers = Publishers(store, self._committer, clock, limits)
        self._payloads = Payloads(store.payloads, self._references, limits)
        self.payload_sweep = PayloadSweep(self._committer, self.threads, self._references, self._payloads)
        self._publisher = Publisher(
            context, self._committer, self._snowflakes, self._publishers, self._payloads, self._references
        )
        self.pipelines = Pipelines(store, self._committer, context, self.threads, store.staging, clock, limits)
        self.tables = TableDefinitions(store, self.topics, clock, limits)
        self.snapshots = Snapshots(store)
        self.routes = Routes(store, self._committer, self.topics, self.snapshots, clock, limits, context.arrived)
        self.routing = Routing(store, self._committer, self.threads, self._fetcher, self.topics, self.routes, self.pipelines)
        checkpoints = TableCheckpoints(store, self._committer, self.tables, clock, limits)
        self.changes = ChangeLog(
            context, self._committer, self._publisher, self._snowflakes, self.tables, self.snapshots, checkpoints
        )
        self.retention = Retention(
            store,
            self._committer,
            self.topics,
            self.threads,
            stable,
            aborted,
            self._references,
            self._floor,
            checkpoints.held_back,
            checkpoints.cover,
            clock,
            self._waiting_fetches.disturbed,
        )
        self.oldest_times = OldestTimes(store, limits.known_time_runs)
        percent = settings.survey_percent
        self.survey = Survey(
            store, self._committer, self.topics, self.threads, self.oldest_times, limits, percent=max(1, percent)
        )
        surveying = (BackgroundJob("survey", settings.survey_interval_seconds, self.survey.run_once),) if percent else ()
        self._jobs = BackgroundJobs(
            (
                BackgroundJob("retention", settings.retention_interval_seconds, self.retention.run_once),
                BackgroundJob("dedup", settings.dedup_interval_seconds, self._dedup.clean),
                BackgroundJob("producers", settings.producer_interval_seconds, self.producers.expire),
                BackgroundJob("publishers", settings.producer_interval_seconds, self._publishers.expire),
                BackgroundJob("transactions", settings.transaction_interval_seconds, self.transactions.abort_overdue),
                BackgroundJob("transactional_ids", settings.producer_interval_seconds, self._transactions.silent_ids.forget),
                BackgroundJob("groups", settings.group_interval_seconds, self.group_removal.expire),
                BackgroundJob("payloads", settings.payload_interval_seconds, self.payload_sweep.run_once),
                BackgroundJob("staging", settings.staging_interval_seconds, self.pipelines.clean),
                *surveying,
            )
        )

    async def start(self) -> None:
        """Read the state from the store and begin to work."""
        self._committer.start()
        self.topics.load()
        self._references.load()
        self.tables.load()
        self.routes.load()
        self.snapshots.load()
        self.offsets.load()
        self.groups.start()
        self.queues.start()
        self.producers.load()
        self._publishers.load()
        self._transactions.load()
        self.pipelines.load()
        await self.unchecked.load(self._committer)
        self.cluster_id = await identity_of(self._store, self._committer, uuid4)
        self._snowflakes.start_after(int.from_bytes(self._store.get(keys.MESSAGE_ID_MARK) or b""))
        self._jobs.start()

    async def close(self) -> None:
        """Take nothing new, tell those who wait, and return when everything in flight is answered."""
        await self._jobs.close()
        self._fetcher.close()
        self.subscriptions.close()
        self.groups.close()
        await self.queues.close()
        await self.pipelines.close()
        await self._appender.close()
        await self._committer.close()
        self.threads.close()
        self._checks.close()
        self._payloads.close()

    def append(self, batches: Sequence[RawBatch], *, adds_partitions: bool = False) -> PendingOutcomes:
        """Append Kafka batches, each judged for itself. See `Appender.append`."""
        return self._appender.append(batches, adds_partitions=adds_partitions)

    def append_one(self, raw: RawBatch, waiter: AppendCallback, *, adds_partitions: bool = False) -> None:
        """Append one Kafka batch, without a future. See `Appender.append_one`."""
        self._appender.append_one(raw, waiter, adds_partitions=adds_partitions)

    async def publish(self, messages: Sequence[Message], *, by_server: bool = False) -> list[Published]:
        """Publish messages to any number of topics, all or nothing. See `Publisher.publish`."""
        return await self._publisher.publish(messages, by_server=by_server)

    async def publish_once(self, numbered: NumberedPublish, messages: Sequence[Message]) -> list[Published]:
        """Publish, and store it once however often it is sent. See `Publisher.publish_once`."""
        return await self._publisher.publish_once(numbered, messages)

    async def fetch(
        self,
        wanted: Sequence[PartitionFetch],
        *,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        answer: ReadAnswer | None = None,
    ) -> list[PartitionBatches]:
        """Batches as they are stored. See `Fetcher.fetch`."""
        return await self._fetcher.fetch(
            wanted, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, isolation=isolation, answer=answer
        )

    async def committed_many(
        self,
        topic: str,
        starts: Sequence[PartitionOffset],
        answer: ReadAnswer | None = None,
        *,
        topic_uuid: UUID | None = None,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
    ) -> dict[int, CommittedBatches]:
        """Batches for a reader that decodes them itself. See `CommittedReader.batches_of_many`."""
        return await self._committed.batches_of_many(
            topic, starts, answer, topic_uuid=topic_uuid, max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )

    async def await_growth(self, ends: Mapping[str, Sequence[int]], max_wait_ms: int) -> None:
        """See `Fetcher.await_growth`."""
        await self._fetcher.await_growth(ends, max_wait_ms)

    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_records: int,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        answer: ReadAnswer | None = None,
    ) -> PartitionRecords:
        """Decoded records. See `CommittedReader.read`."""
        return await self._committed.read(
            topic, partition, offset, answer, max_records=max_records, max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something that takes long, such as to encode a large answer, in one of the few threads that readers have."""
        return await self.threads.run(call, *args, **kwargs)

    def end_cursor(self) -> Cursor:
        """The cursor that the next record of the log will get."""
        return self._store.end_cursor()

    def is_full(self) -> bool:
        """Whether records are refused because the disk has no room."""
        return self._store.is_full()

    def view(self, topic: str) -> TopicScan:
        """The topic as it is now, to be read from any thread. See `Scanner`."""
        return self._scanner.view(self.topics.get(topic))

    def collector(self) -> BrokerCollector:
        """Everything that is counted, for a Prometheus registry."""
        return BrokerCollector(
            Sources(
                self._store,
                self.topics,
                self._committer,
                self._waiting_fetches,
                self.subscriptions,
                self.threads,
                self.offsets,
                self.groups,
                self._live_groups,
                self.group_removal,
                self.producers,
                self._transactions,
                self._dedup,
                self._jobs,
                self.snapshots,
                self.pipeline_statuses,
                self.queues,
                self._payloads,
                self._expansion,
                self.survey,
                self.answers,
            )
        )

    def pipeline_statuses(self) -> list[PipelineStatus]:
        """All pipelines and how they do."""
        return [
            msgspec.structs.replace(status, lag=self.routing.lag()) if status.name == ROUTER else status
            for status in self.pipelines
        ]

    def _floor(self, partition: PartitionId) -> Offset | None:
        floors = (self.routes.floor(partition), self.changes.floor(partition), self.routing.floor(partition))
        return min((floor for floor in floors if floor is not None), default=None)

    def _check_droppable(self, topic_id: TopicId) -> None:
        self.routes.check_droppable(topic_id)

    def _arrived(self, partition: PartitionId, size: int) -> None:
        self._waiting_fetches.arrived(partition, size)
        self.queues.arrived(partition)

    def _stabilized(self, partition: PartitionId, size: int) -> None:
        self._waiting_fetches.stabilized(partition, size)
        self.queues.arrived(partition)
        self.subscriptions.stabilized()

    def _partition_gone(self, partition: PartitionId) -> None:
        self._waiting_fetches.disturbed(partition)
        self.producers.forget_partition(partition)
        self._transactions.forget_partition(partition)
        self.queues.forget_partition(partition)
        self._references.forget_partition(partition)
        self.unchecked.forget_partition(partition)
        self.subscriptions.stabilized()
