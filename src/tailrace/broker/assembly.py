"""Builds all services of a broker and connects them: the one place that knows which service needs which.

Services get their collaborators in the constructor and are built from the lowest layer up (the import contract "Layers of the
broker" in `pyproject.toml`). Where a lower service has to tell a higher one that something happened, it calls one of the
functions at the end of `Services`.
"""

from collections.abc import Awaitable, Sequence

from tailrace.broker.commits import Committer
from tailrace.broker.compaction import Compaction
from tailrace.broker.groups.consumer_coordinator import ConsumerGroupCoordinator
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.pending_offsets import PendingOffsets
from tailrace.broker.groups.registry import GroupNames, GroupRegistry
from tailrace.broker.groups.removal import GroupRemoval
from tailrace.broker.groups.subscribed_topics import SubscribedTopics
from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.jobs import BackgroundJob, BackgroundJobs
from tailrace.broker.payloads import PayloadReferences, Payloads, PayloadSweep
from tailrace.broker.pipelines.pipelines import Pipelines
from tailrace.broker.pipelines.staged_writes import StagedWrites
from tailrace.broker.producers.producers import Producers
from tailrace.broker.producers.publishers import Publishers
from tailrace.broker.publishing.append import Appender
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.publishing.dedup import Deduplication
from tailrace.broker.publishing.publish import Publisher
from tailrace.broker.publishing.snowflake import Snowflakes
from tailrace.broker.publishing.validation import RecordChecks
from tailrace.broker.queues.queues import Queues
from tailrace.broker.queues.redrive import Redrives
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.reading.answers import AnswerMemory
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.reading.consume import Consumers, Positions
from tailrace.broker.reading.fetch import Fetcher, WaitingFetches
from tailrace.broker.reading.reader import PayloadExpansion, Reader
from tailrace.broker.reading.scan import Scanner
from tailrace.broker.reading.unchecked import UncheckedBatches
from tailrace.broker.regular_expressions import RegularExpressions
from tailrace.broker.retention import Retention
from tailrace.broker.routes.intake import RouteIntake
from tailrace.broker.routes.owners import RouteOwners
from tailrace.broker.routes.routes import Routes, Snapshots
from tailrace.broker.routes.routing import Routing
from tailrace.broker.security.audit import Audit
from tailrace.broker.security.authentication import Authenticator
from tailrace.broker.security.grants import Grants
from tailrace.broker.security.oidc import OidcTokens
from tailrace.broker.security.permissions import Permissions
from tailrace.broker.security.principals import current_principal
from tailrace.broker.security.quotas import Quotas
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.security.users import Users
from tailrace.broker.settings import BrokerSettings
from tailrace.broker.shadows.cut_over import CutOvers
from tailrace.broker.shadows.holds import ShadowHolds
from tailrace.broker.shadows.shadows import Shadows
from tailrace.broker.sources.captured import CapturedTransactions
from tailrace.broker.sources.snapshots import SourceSnapshots
from tailrace.broker.sources.sources import Sources
from tailrace.broker.subscriptions.pattern_positions import PatternPositions
from tailrace.broker.subscriptions.pattern_topics import PatternReader
from tailrace.broker.subscriptions.subscriptions import Subscriptions
from tailrace.broker.subscriptions.tail import SubscriptionTail
from tailrace.broker.subscriptions.watched_patterns import WatchedPatterns
from tailrace.broker.tables.change_log import ChangeLog
from tailrace.broker.tables.checkpoints import TableCheckpoints
from tailrace.broker.tables.tables import TableDefinitions
from tailrace.broker.tables.views import ViewDefinitions
from tailrace.broker.topics.patterns import PatternTopic
from tailrace.broker.topics.topics import Topics
from tailrace.broker.transactions.transactions import Transactions
from tailrace.model.clock import Clock
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.model.security import AUDIT_TOPIC
from tailrace.model.topic import TopicOptions
from tailrace.store.contract import Store


class Services:
    """The services of one broker. Surfaces call them directly: `broker.topics.create(...)`, `broker.fetcher.fetch(...)`."""

    def __init__(
        self, store: Store, clock: Clock, limits: Limits, settings: BrokerSettings, security: SecuritySettings
    ) -> None:
        self.store = store
        self._clock = clock
        self._limits = limits
        self._settings = settings
        self.committer = Committer(store, limits)
        self.threads = ReadThreads(limits)
        self.grants = Grants(store, self.committer, limits)
        self.users = Users(store, self.committer, self.threads, clock, limits, self.grants)
        self.permissions = Permissions(self.users, self.grants, limits, is_on=security.authentication == "required")
        self.authenticator = Authenticator(self.users, self.threads, clock, limits)
        self.oidc = OidcTokens(security, self.users, self.authenticator, clock, limits)
        self.quotas = Quotas(store, self.committer, clock, limits, self.grants.turns)
        self._build_audit(security)
        self.regular_expressions = RegularExpressions(self.threads, limits)
        self.topics = Topics(
            store,
            self.committer,
            clock,
            limits,
            self.permissions,
            self._partition_deleted,
            self._check_droppable,
            self._check_free,
        )
        self._stable = StableOffsets()
        self._aborted = AbortedTransactions(store)
        self._build_payloads_and_reading()
        self._build_groups()
        self._build_transactions_and_publishing()
        self._build_queues_and_subscriptions()
        self._build_tables_and_routes()
        self._build_retention()
        self.jobs = BackgroundJobs(tuple(self._background_jobs()))

    def _build_audit(self, security: SecuritySettings) -> None:
        def write(values: Sequence[bytes]) -> Awaitable[object]:
            return self.publisher.publish([Message(AUDIT_TOPIC, value) for value in values], by_server=True)

        async def create_topic() -> None:
            options = TopicOptions(retention_seconds=security.audit_retention_seconds)
            if self.topics.find(AUDIT_TOPIC) is None:
                await self.topics.create_reserved(AUDIT_TOPIC, options=options)
            else:
                await self.topics.alter(AUDIT_TOPIC, options)

        is_on = security.authentication == "required"
        self.audit = Audit(self._clock, self._limits, is_on=is_on, create_topic=create_topic, write=write)
        self.permissions.on_denial = self.audit.denied
        self.authenticator.on_failure = self.audit.login_failed
        self.users.on_change = self.grants.on_change = self.quotas.on_change = self.audit.changed

    def _build_payloads_and_reading(self) -> None:
        store, limits = self.store, self._limits
        self.payload_references = PayloadReferences(store)
        self.payloads = Payloads(store.payloads, self.payload_references, limits)
        self.payload_sweep = PayloadSweep(self.committer, self.threads, self.payload_references, self.payloads)
        self.payload_expansion = PayloadExpansion(store, self.payload_references, limits)
        self.reader = Reader(store, self.payload_expansion, self.threads)
        self.waiting_fetches = WaitingFetches(self._stable, limits)
        self.permissions.observers.append(self.waiting_fetches.wake_all)
        self.unchecked = UncheckedBatches(store, self.threads, limits)
        self.fetcher = Fetcher(
            store, self.reader, self.topics, self._stable, self._aborted, self.waiting_fetches, self.unchecked, limits
        )
        self.answers = AnswerMemory(limits)
        self.committed_reader = CommittedReader(self.fetcher, self.threads, self.topics, self.answers, limits)
        self.scanner = Scanner(store, self.topics, self.payload_expansion, self._stable, self._aborted)
        self.positions = Positions(store, self.threads, self.topics, self._stable, limits)

    def _build_groups(self) -> None:
        store, clock, limits = self.store, self._clock, self._limits
        names = self._group_names = GroupNames(limits)
        self._pending_offsets = PendingOffsets(store)
        self.offsets = GroupOffsets(
            store, self.committer, self.topics, names, self._pending_offsets, clock, limits, self._pattern_end
        )
        self.group_registry = GroupRegistry(names, limits)
        subscribed = SubscribedTopics(self.topics, self.regular_expressions)
        self.consumer_groups = ConsumerGroupCoordinator(
            store, self.committer, self.group_registry, names, subscribed, self.permissions, clock, limits
        )
        self.groups = GroupCoordinator(
            store,
            self.committer,
            self.group_registry,
            self.consumer_groups,
            self.offsets,
            names,
            self.permissions,
            clock,
            limits,
            self._settings,
        )
        self.group_removal = GroupRemoval(self.group_registry, self.offsets, names, self.permissions, clock, self._settings)
        self.consumers = Consumers(
            self.topics,
            self.positions,
            self.offsets,
            self.groups,
            self.committed_reader,
            limits,
            lambda pattern, start: self.pattern_positions.resolve(pattern, start),
        )

    def _build_transactions_and_publishing(self) -> None:
        store, clock, limits = self.store, self._clock, self._limits
        self.producers = Producers(store, self.committer, self.permissions, clock, limits)
        self.publishers = Publishers(store, self.committer, clock, limits)
        self.transaction_services = Transactions(
            store,
            self.committer,
            self.topics,
            self.producers,
            self.offsets,
            self._group_names,
            self._pending_offsets,
            self._stable,
            self._aborted,
            clock,
            limits,
            self._transaction_ended,
            lambda: self.quotas.hold(current_principal(), None, "open_transactions"),
        )
        self.transactions = self.transaction_services.coordinator
        self.transaction_queries = self.transaction_services.queries
        self.dedup = Deduplication(store, self.committer, self.topics, clock, limits)
        self.snowflakes = Snowflakes(clock, self._settings.node)
        self.record_checks = RecordChecks(limits)
        self._context = PublishContext(
            store,
            self.topics,
            self.producers,
            self.dedup,
            self.transaction_services.appends,
            clock,
            limits,
            self.record_checks,
            self._records_appended,
        )
        self.appender = Appender(self._context, self.committer)
        self.publisher = Publisher(
            self._context, self.committer, self.snowflakes, self.publishers, self.payloads, self.payload_references
        )

    def _build_queues_and_subscriptions(self) -> None:
        store, clock, limits = self.store, self._clock, self._limits
        self.queues = Queues(store, self.committer, self.topics, self.committed_reader, self._context, clock, limits)
        self.redrives = Redrives(self._context, self.committer, self.committed_reader)
        tail = SubscriptionTail(store, self.committer, self.topics, limits)
        self.subscriptions = Subscriptions(
            store, self.reader, tail, self._stable, self._aborted, self.answers, self.permissions, limits
        )
        self.watched_patterns = WatchedPatterns(store, self.topics, self.subscriptions, tail, self.waiting_fetches, limits)
        self.pattern_positions = PatternPositions(store, self.watched_patterns, self.positions, self._stable, self.threads)
        self.fetcher.patterns = PatternReader(
            self.watched_patterns,
            self.pattern_positions,
            self.subscriptions,
            tail,
            self.unchecked,
            self.permissions,
            limits,
        )

    def _build_tables_and_routes(self) -> None:
        store, clock, limits = self.store, self._clock, self._limits
        self.staged_writes = StagedWrites(
            store,
            self.committer,
            self._context,
            self.threads,
            store.staging,
            limits,
            self._stable,
            self._transaction_is_whole,
        )
        self.pipelines = Pipelines(
            store, self.committer, self._context, self.threads, store.staging, clock, limits, self.staged_writes
        )
        self.tables = TableDefinitions(store, self.committer, self.topics, self.grants, clock, limits)
        self.snapshots = Snapshots(store)
        self.routes = Routes(store, self.committer, self.topics, self.snapshots, clock, limits, self._context.arrived)
        self.route_owners = RouteOwners(self.committer, self.topics, self.routes)
        self.sources = Sources(store, self.committer, self.topics, self.routes, self.grants, clock, limits)
        self.source_snapshots = SourceSnapshots(store, self.committer, self.topics, self.sources, clock, limits)
        self.captured = CapturedTransactions(
            self.committer, self._context, self.threads, self.staged_writes, self.pipelines, self.sources
        )
        self.routing = Routing(
            store, self.committer, self.threads, self.fetcher, self.topics, self.routes, self.pipelines, self._stable
        )
        self.intake = RouteIntake(
            self.committer,
            self._context,
            self.routes,
            self.pipelines,
            self.subscriptions,
            self.tables.types.with_route_labels,
        )
        self.shadows = Shadows(store, self.committer, self.topics, clock, limits)
        self.cut_overs = CutOvers(
            store, self.committer, self.topics, self.routes, self.shadows, self.staged_writes.unfinished, clock, limits
        )
        self.shadow_holds = ShadowHolds(store, self.topics, self.shadows)
        self.views = ViewDefinitions(store, self.committer, self.topics, self.grants, clock, limits)
        self._checkpoints = TableCheckpoints(store, self.committer, self.tables, clock, limits)
        self.changes = ChangeLog(
            self._context, self.committer, self.publisher, self.snowflakes, self.tables, self.snapshots, self._checkpoints
        )

    def _build_retention(self) -> None:
        self.compaction = Compaction(
            self.store,
            self.committer,
            self.topics,
            self.threads,
            self._stable,
            self._aborted,
            self.shadow_holds.current,
            self.shadow_holds.note_lost_deletions,
            self._clock,
            self._limits,
            self._settings,
            self.payload_sweep.compacted,
        )
        self.retention = Retention(
            self.store,
            self.committer,
            self.topics,
            self.threads,
            self._stable,
            self._aborted,
            self.payload_references,
            self._first_needed_offset,
            self._checkpoints.held_back,
            self._checkpoints.cover,
            self.compaction.knows_size,
            self.shadow_holds.current,
            self._clock,
            self._limits,
            self.waiting_fetches.disturbed,
        )

    def _background_jobs(self) -> list[BackgroundJob]:
        settings = self._settings
        return [
            BackgroundJob("retention", settings.retention_interval_seconds, self.retention.run_once),
            BackgroundJob("compaction", settings.compaction_interval_seconds, self.compaction.run_once),
            BackgroundJob("dedup", settings.dedup_interval_seconds, self.dedup.clean),
            BackgroundJob("producers", settings.producer_interval_seconds, self.producers.states.expire),
            BackgroundJob("publishers", settings.producer_interval_seconds, self.publishers.states.expire),
            BackgroundJob("transactions", settings.transaction_interval_seconds, self.transactions.abort_overdue),
            BackgroundJob("transactional_ids", settings.producer_interval_seconds, self.transaction_services.id_expiry.run),
            BackgroundJob("groups", settings.group_interval_seconds, self.group_removal.expire),
            BackgroundJob("payloads", settings.payload_interval_seconds, self.payload_sweep.run_once),
            BackgroundJob("staging", settings.staging_interval_seconds, self.pipelines.clean),
        ]

    def _pattern_end(self, pattern: PatternTopic) -> Offset:
        return self.pattern_positions.matched(pattern.pattern)

    def _first_needed_offset(self, partition: PartitionId) -> Offset | None:
        floors = (self.routes.floor(partition), self.changes.floor(partition), self.routing.floor(partition))
        return min((floor for floor in floors if floor is not None), default=None)

    def _check_droppable(self, topic_id: TopicId) -> None:
        self.routes.check_droppable(topic_id)
        self.views.check_droppable(topic_id)

    def _check_free(self, name: str) -> None:
        self.views.check_free(name)

    def _records_appended(self, partition: PartitionId, size: int) -> None:
        self.waiting_fetches.arrived(partition, size)
        self.queues.arrived(partition)

    def _transaction_ended(self, partition: PartitionId, size: int) -> None:
        self.waiting_fetches.stabilized(partition, size)
        self.queues.arrived(partition)
        self.subscriptions.transaction_ended()
        self.watched_patterns.transaction_ended()

    def _transaction_is_whole(self, partition: PartitionId) -> None:
        self.waiting_fetches.disturbed(partition)
        self.queues.arrived(partition)
        self.subscriptions.transaction_ended()
        self.watched_patterns.transaction_ended()

    def _partition_deleted(self, partition: PartitionId) -> None:
        self.waiting_fetches.disturbed(partition)
        self.producers.forget_partition(partition)
        self.transaction_services.forget_partition(partition)
        self.queues.forget_partition(partition)
        self.payload_references.forget_partition(partition)
        self.unchecked.forget_partition(partition)
        self.subscriptions.transaction_ended()
        self.watched_patterns.transaction_ended()
