"""The metrics of the broker, its store and SQL, as Prometheus families.

Services keep plain numbers, which cost almost nothing on the path of a record. They become families only when the metrics are
requested.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.broker.assembly import Services
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.pipeline import PipelineStatus
from tailrace.model.shadow import ShadowStatus
from tailrace.model.source import SourceStatus
from tailrace.model.stats import Histogram, SqlStats, StoreStats


class BrokerMetric(NamedTuple):
    """A number of the whole broker."""

    name: str
    text: str
    read: Callable[[Services], float]
    is_counter: bool = True


class TopicMetric(NamedTuple):
    name: str
    text: str
    read: Callable[[LiveTopic], float]


class PipelineMetric(NamedTuple):
    name: str
    text: str
    read: Callable[[PipelineStatus], float | None]
    """Returns None if the pipeline has no such number."""
    is_counter: bool = True


class SourceMetric(NamedTuple):
    name: str
    text: str
    read: Callable[[SourceStatus], float | None]
    """Returns None if the source has no such number."""
    is_counter: bool = False


class ShadowMetric(NamedTuple):
    name: str
    text: str
    read: Callable[[ShadowStatus], float | None]
    """Returns None if the shadow has no such number."""
    is_counter: bool = False


class StoreHistogram(NamedTuple):
    """A histogram of the store."""

    name: str
    text: str
    read: Callable[[StoreStats], Histogram]


BY_SOURCE = (
    SourceMetric(
        "source_streaming", "1 while the changes of a source are streamed, else 0.", lambda status: status.state == "streaming"
    ),
    SourceMetric(
        "source_lag_bytes",
        "Bytes of the database's log that were not received yet.",
        lambda status: max(0, status.report.database_lsn - status.report.received_lsn) if status.report.database_lsn else None,
    ),
    SourceMetric(
        "source_retained_bytes", "Bytes that the database keeps for a source.", lambda status: status.report.retained_bytes
    ),
    SourceMetric("source_changes", "Captured changes of a source.", lambda status: status.report.changes, is_counter=True),
    SourceMetric(
        "source_transactions",
        "Captured transactions of a source.",
        lambda status: status.report.transactions,
        is_counter=True,
    ),
)
BY_SHADOW = (
    ShadowMetric("shadow_live", "1 while a shadow copies what is new, else 0.", lambda status: status.state == "live"),
    ShadowMetric("shadow_lag", "Offsets that a shadow has not copied yet.", lambda status: status.report.lag),
    ShadowMetric(
        "shadow_lag_seconds",
        "How long the oldest record that a shadow has not copied has been there.",
        lambda status: status.report.lag_seconds,
    ),
    ShadowMetric("shadow_fenced", "1 while a shadow is cut over, else 0.", lambda status: status.shadow.fence is not None),
    ShadowMetric("shadow_records", "Records that a shadow has copied.", lambda status: status.report.records, is_counter=True),
    ShadowMetric(
        "shadow_bytes",
        "Bytes that a shadow has copied, as they are stored.",
        lambda status: status.report.bytes,
        is_counter=True,
    ),
    ShadowMetric("shadow_groups", "Groups whose offsets a shadow has set in the target.", lambda status: status.report.groups),
)
BY_TOPIC = (
    TopicMetric("messages_in", "Messages written, by topic.", lambda live: live.messages_in),
    TopicMetric("bytes_in", "Bytes of batches written, by topic.", lambda live: live.bytes_in),
    TopicMetric("messages_out", "Messages sent to readers, by topic.", lambda live: live.messages_out),
    TopicMetric("bytes_out", "Bytes sent to readers, by topic.", lambda live: live.bytes_out),
    TopicMetric("dedup_hits", "Duplicate messages that were not written again, by topic.", lambda live: live.dedup_hits),
    TopicMetric(
        "dedup_evictions",
        "Message ids evicted before the end of their window to stay within dedup_entries.",
        lambda live: live.dedup_evictions,
    ),
    TopicMetric("retention_trimmed_messages", "Messages deleted by retention, by topic.", lambda live: live.trimmed_records),
)

BY_JOB = (("job_runs", "Successful runs of background jobs."), ("job_failures", "Failed runs of background jobs."))

BY_PIPELINE = (
    PipelineMetric("pipeline_running", "1 while a pipeline runs, else 0.", lambda pipeline: pipeline.running, is_counter=False),
    PipelineMetric("pipeline_lag", "Changes that wait to be routed.", lambda pipeline: pipeline.lag, is_counter=False),
    PipelineMetric(
        "pipeline_idle_seconds",
        "Seconds since a pipeline last published.",
        lambda pipeline: pipeline.idle_seconds,
        is_counter=False,
    ),
    PipelineMetric("pipeline_rows", "Changes processed by a pipeline.", lambda pipeline: pipeline.report.rows),
    PipelineMetric("pipeline_batches", "Batches of a pipeline.", lambda pipeline: pipeline.report.batches),
    PipelineMetric(
        "pipeline_dead_letters", "Changes that went to dead letters.", lambda pipeline: pipeline.report.dead_letters
    ),
)

THROTTLED = ("quota_throttles", "How often somebody had to wait or was refused because of a quota, by kind of quota.")
GROUP_LAG = ("group_lag", "Messages that a group has not processed yet, by group and topic.")
GROUP_STATES = ("group_states", "Consumer groups, by state.")
GROUP_GENERATIONS = ("group_generation", "The generation of each group that has or had members.")

HISTOGRAMS = (
    StoreHistogram(
        "commit_seconds", "Seconds from the submission of a commit to its answer.", lambda stats: stats.commit_seconds
    ),
    StoreHistogram("sync_seconds", "Seconds of one write and sync of a group of commits.", lambda stats: stats.sync_seconds),
    StoreHistogram("commits_per_sync", "Commits that shared one sync.", lambda stats: stats.commits_per_sync),
    StoreHistogram("compaction_seconds", "Seconds of a compaction.", lambda stats: stats.compaction_seconds),
    StoreHistogram("checkpoint_seconds", "Seconds to save the index.", lambda stats: stats.checkpoint_seconds),
)


def _store_metric(name: str, text: str, read: Callable[[StoreStats], float], *, is_counter: bool = True) -> BrokerMetric:
    return BrokerMetric(name, text, lambda services: read(services.store.stats()), is_counter)


def _gauge_of(name: str, text: str, read: Callable[[Services], float]) -> BrokerMetric:
    return BrokerMetric(name, text, read, is_counter=False)


NUMBERS = (
    _gauge_of("topics", "Number of topics.", lambda services: len(services.topics)),
    _gauge_of("partitions", "Number of partitions of all topics.", lambda services: services.topics.partition_count),
    _gauge_of(
        "retention_held_bytes",
        "Bytes that retention keeps for shadows that have not copied them.",
        lambda services: services.retention.held_bytes,
    ),
    _gauge_of("groups", "Consumer groups that are stored.", lambda services: len(services.offsets.groups)),
    _gauge_of("group_members", "Members of all groups.", lambda services: services.group_registry.members),
    BrokerMetric("group_rebalances", "Rebalances of all groups.", lambda services: services.group_registry.rebalances),
    BrokerMetric(
        "groups_expired", "Groups deleted after their retention time.", lambda services: services.group_removal.expired
    ),
    _gauge_of(
        "end_cursor", "The cursor that the next record of the log will get.", lambda services: services.store.end_cursor()
    ),
    _gauge_of("fetch_waiters", "Fetches that wait for records.", lambda services: len(services.waiting_fetches)),
    _gauge_of("subscribers", "Subscribers to patterns.", lambda services: services.subscriptions.subscribers),
    BrokerMetric(
        "subscribers_cut", "Subscribers disconnected because they were too slow.", lambda services: services.subscriptions.cut
    ),
    BrokerMetric("subscription_messages", "Messages sent to subscribers.", lambda services: services.subscriptions.delivered),
    BrokerMetric("snapshot_rows", "Rows written by snapshots of routes.", lambda services: services.snapshots.rows),
    _gauge_of(
        "running_snapshots",
        "Snapshots of routes that are running.",
        lambda services: sum(map(len, services.snapshots.running.values())),
    ),
    _gauge_of("queues", "Number of queues.", lambda services: len(services.queues)),
    _gauge_of(
        "queue_in_flight",
        "Records of queues that are delivered and not acknowledged.",
        lambda services: services.queues.in_flight,
    ),
    _gauge_of("queue_waiters", "Consumers of queues that wait for a record.", lambda services: services.queues.waiters),
    BrokerMetric("queue_deliveries", "Records delivered by queues.", lambda services: services.queues.delivered),
    BrokerMetric(
        "queue_redeliveries", "Of these, records that were delivered before.", lambda services: services.queues.repeated
    ),
    BrokerMetric("queue_acks", "Records acknowledged by consumers of queues.", lambda services: services.queues.acknowledged),
    BrokerMetric("queue_late_receipts", "Receipts that were rejected.", lambda services: services.queues.refused),
    BrokerMetric(
        "queue_dead_letters",
        "Records of queues that went to dead letters.",
        lambda services: services.queues.dead_letters.letters,
    ),
    BrokerMetric(
        "queue_missed",
        "Records that were deleted or unreadable before a queue had processed them.",
        lambda services: services.queues.missed,
    ),
    BrokerMetric("payloads_stored", "Large values stored beside the log.", lambda services: services.payloads.stored),
    BrokerMetric("payload_stored_bytes", "Bytes of these.", lambda services: services.payloads.stored_bytes),
    BrokerMetric(
        "payloads_found",
        "Large values that were stored already and not written again.",
        lambda services: services.payloads.found,
    ),
    BrokerMetric(
        "payloads_removed", "Large values removed because no record refers to them.", lambda services: services.payloads.removed
    ),
    BrokerMetric(
        "payloads_lost", "Reads that found a large value missing or damaged.", lambda services: services.payload_expansion.lost
    ),
    _gauge_of(
        "pending_payload_bytes",
        "Bytes of large values that wait to be written.",
        lambda services: services.payloads.pending_bytes,
    ),
    _gauge_of(
        "answers_held_bytes",
        "Bytes of memory that answers to readers hold, from before decoding until they are sent.",
        lambda services: services.answers.held_bytes,
    ),
    _gauge_of("answers_waiting", "Readers that wait for memory for their answer.", lambda services: services.answers.waiting),
    BrokerMetric(
        "answers_refused",
        "Readers that were rejected because no memory was available in time.",
        lambda services: services.answers.refused,
    ),
    BrokerMetric(
        "skipped_corrupt_messages",
        "Messages in batches that can't be decoded and were skipped on the readers' request.",
        lambda services: services.answers.skipped,
    ),
    _gauge_of("queued_reads", "Reads that wait for the disk.", lambda services: services.threads.queued),
    _gauge_of("waiting_publishes", "Publishes that wait for room in the store.", lambda services: services.committer.waiting),
    _gauge_of(
        "waiting_publish_bytes",
        "Bytes of publishes that wait for room in the store.",
        lambda services: services.committer.waiting_bytes,
    ),
    BrokerMetric("overloads", "How often a publish found no room in the store.", lambda services: services.committer.overloads),
    BrokerMetric("dedup_cleaned", "Message ids deleted at the end of their window.", lambda services: services.dedup.cleaned),
    BrokerMetric(
        "producer_duplicates",
        "Messages that a producer sent again, found by their sequence number.",
        lambda services: services.producers.duplicates,
    ),
    BrokerMetric(
        "producers_expired", "Producers deleted after their idle time.", lambda services: services.producers.states.expired
    ),
    BrokerMetric(
        "producers_evicted",
        "Producers evicted early to stay within producers_per_partition.",
        lambda services: services.producers.states.evicted,
    ),
    _gauge_of("transactional_ids", "Number of known transactional ids.", lambda services: services.transaction_services.ids),
    _gauge_of("open_transactions", "Number of open transactions.", lambda services: services.transaction_services.open),
    BrokerMetric("transactions_committed", "Transactions committed.", lambda services: services.transaction_services.committed),
    BrokerMetric(
        "transactions_aborted",
        "Transactions aborted, for any reason.",
        lambda services: services.transaction_services.aborted,
    ),
    BrokerMetric(
        "transactions_timed_out",
        "Transactions aborted after their timeout.",
        lambda services: services.transaction_services.timed_out,
    ),
    BrokerMetric("audit_records", "Records written to the audit.", lambda services: services.audit.written),
    BrokerMetric(
        "audit_counted",
        "Denials that are no record of their own, but counted in that of another one.",
        lambda services: services.audit.counted,
    ),
    BrokerMetric(
        "audit_failures", "Writes to the audit that failed and are repeated.", lambda services: services.audit.failures
    ),
    _gauge_of("audit_waiting", "Records of the audit that wait to be written.", lambda services: services.audit.waiting),
    BrokerMetric(
        "oidc_key_reads",
        "How often the keys of the OIDC issuer were read.",
        lambda services: 0 if services.oidc.keys is None else services.oidc.keys.reads,
    ),
    BrokerMetric(
        "oidc_key_failures",
        "How often they could not be read.",
        lambda services: 0 if services.oidc.keys is None else services.oidc.keys.failures,
    ),
    _store_metric("commits", "Commits made durable.", lambda stats: stats.commits),
    _store_metric("commit_bytes", "Bytes of commits made durable.", lambda stats: stats.commit_bytes),
    _store_metric("failed_commits", "Commits that failed in the store.", lambda stats: stats.failed_commits),
    _gauge_of("disk_full", "1 while records are rejected because the disk is full.", lambda services: services.store.is_full()),
    _store_metric(
        "pending_commits", "Commits that wait for their sync.", lambda stats: stats.pending_commits, is_counter=False
    ),
    _store_metric(
        "pending_bytes", "Bytes of commits that wait for their sync.", lambda stats: stats.pending_bytes, is_counter=False
    ),
    _store_metric("fetches_from_memory", "Fetches answered from memory.", lambda stats: stats.fetches_from_memory),
    _store_metric(
        "fetches_from_page_cache",
        "Fetches answered from the system's page cache, without waiting for the disk.",
        lambda stats: stats.fetches_from_page_cache,
    ),
    _store_metric("fetches_from_disk", "Fetches that had to read the disk.", lambda stats: stats.fetches_from_disk),
    _store_metric("disk_reads", "Reads from segment files.", lambda stats: stats.disk_reads),
    _store_metric("disk_read_bytes", "Bytes read from segment files.", lambda stats: stats.disk_read_bytes),
    _store_metric("cached_bytes", "Newest record bytes held in memory.", lambda stats: stats.cached_bytes, is_counter=False),
    _store_metric("checkpoints", "How often the index was saved.", lambda stats: stats.checkpoints),
    _store_metric("segments", "Segment files of the log.", lambda stats: stats.segments, is_counter=False),
    _store_metric("log_bytes", "Bytes of all segment files.", lambda stats: stats.log_bytes, is_counter=False),
    _store_metric("segments_deleted", "Segments deleted because they held no live data.", lambda stats: stats.segments_deleted),
    _store_metric(
        "segments_rewritten", "Segments rewritten without their deleted data.", lambda stats: stats.segments_rewritten
    ),
    _store_metric("cleaned_bytes", "Bytes of disk space freed by the cleaner.", lambda stats: stats.cleaned_bytes),
    _store_metric("compactions", "Compactions of topics.", lambda stats: stats.compactions),
    _store_metric("compacted_records", "Records removed by compaction.", lambda stats: stats.compacted_records),
    _store_metric("compacted_bytes", "Bytes of records removed by compaction.", lambda stats: stats.compacted_bytes),
    _store_metric("replayed_frames", "Frames read again at the start.", lambda stats: stats.replayed_frames, is_counter=False),
    _store_metric("replayed_bytes", "Log bytes read again at the start.", lambda stats: stats.replayed_bytes, is_counter=False),
    _store_metric(
        "replay_seconds", "Seconds to read the log again at the start.", lambda stats: stats.replay_seconds, is_counter=False
    ),
    _store_metric(
        "torn_bytes",
        "Bytes of an unfinished frame that were truncated at the start.",
        lambda stats: stats.torn_bytes,
        is_counter=False,
    ),
)

_PREFIX = "tailrace_"


class BrokerCollector(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        services = self._services
        topics = list(services.topics)
        yield _labelled_counter(*THROTTLED, "quota", services.quotas.throttled.items())
        for topic_metric in BY_TOPIC:
            yield _labelled_counter(
                topic_metric.name, topic_metric.text, "topic", ((live.topic.name, topic_metric.read(live)) for live in topics)
            )
        for (name, text), counts in zip(BY_JOB, (services.jobs.runs, services.jobs.failures), strict=True):
            yield _labelled_counter(name, text, "job", counts.items())
        lags = GaugeMetricFamily(_PREFIX + GROUP_LAG[0], GROUP_LAG[1], labels=("group", "topic"))
        for labels, lag in sorted(services.offsets.total_lags().items()):
            lags.add_metric(labels, lag)
        yield lags
        yield _labelled_gauge(*GROUP_STATES, "state", services.groups.states.items())
        yield _labelled_gauge(*GROUP_GENERATIONS, "group", sorted(services.group_registry.generations.items()))
        sources = services.sources.statuses()
        for one in BY_SOURCE:
            found = [(status.source.name, value) for status in sources if (value := one.read(status)) is not None]
            yield (_labelled_counter if one.is_counter else _labelled_gauge)(one.name, one.text, "source", found)
        shadows = services.shadows.statuses()
        for number in BY_SHADOW:
            numbers = [(status.shadow.name, value) for status in shadows if (value := number.read(status)) is not None]
            yield (_labelled_counter if number.is_counter else _labelled_gauge)(number.name, number.text, "shadow", numbers)
        pipelines = services.routing.pipeline_statuses()
        for each in BY_PIPELINE:
            values = [(pipeline.name, value) for pipeline in pipelines if (value := each.read(pipeline)) is not None]
            yield (_labelled_counter if each.is_counter else _labelled_gauge)(each.name, each.text, "pipeline", values)
        for metric in NUMBERS:
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            yield family(_PREFIX + metric.name, metric.text, value=metric.read(services))
        stats = services.store.stats()
        for histogram in HISTOGRAMS:
            yield _histogram(histogram.name, histogram.text, histogram.read(stats))


class SqlCollector(Collector):
    def __init__(self, stats: SqlStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        yield _labelled_counter(
            "sql_statements",
            "Successful SQL statements, by kind.",
            "statement",
            sorted(stats.statements.copy().items()),
        )
        yield _counter("sql_failures", "SQL requests that failed.", stats.failures)
        yield _labelled_counter(
            "table_rows", "Rows inserted, updated and deleted, by table.", "table", sorted(stats.rows.copy().items())
        )
        yield _counter("table_transactions", "Transactions that changed tables.", stats.transactions)
        yield _gauge("waiting_table_writes", "Transactions that wait for the writer of the tables.", stats.waiting_writes)
        yield _gauge("waiting_table_write_bytes", "Bytes of these.", stats.waiting_write_bytes)
        yield _counter(
            "table_rebuilds",
            "How often the file of the tables was damaged and rebuilt from the log.",
            stats.rebuilds,
        )
        yield _counter("table_checkpoints", "Checkpoints of table rows written to the log.", stats.checkpoints)
        yield _labelled_gauge(
            "table_checkpoint_rows",
            "Rows of unfinished checkpoints that are in the log so far, by table.",
            "table",
            sorted(stats.checkpoint_rows.items()),
        )
        yield _gauge(
            "replayed_changes",
            "Changes applied to tables at the start because their file lacked them.",
            stats.replayed_changes,
        )
        yield _histogram(
            "table_write_seconds", "Seconds from the submission of a transaction to its answer.", stats.write_seconds
        )
        yield _histogram("table_transactions_per_commit", "Transactions that shared one commit.", stats.transactions_per_commit)


def _labelled_counter(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    family = CounterMetricFamily(_PREFIX + name, text, labels=(label,))
    for key, value in values:
        family.add_metric((key,), value)
    return family


def _labelled_gauge(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=(label,))
    for key, value in values:
        family.add_metric((key,), value)
    return family


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _histogram(name: str, text: str, held: Histogram) -> HistogramMetricFamily:
    bounds = [*(f"{bound:g}" for bound in held.bounds), "+Inf"]
    buckets = list(zip(bounds, map(float, accumulate(held.counts)), strict=True))
    return HistogramMetricFamily(_PREFIX + name, text, buckets=buckets, sum_value=held.total)
