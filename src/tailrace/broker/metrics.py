"""What the broker and its store have done, as Prometheus families.

The rooms keep plain numbers, because those cost next to nothing where records pass. They become families only when somebody
asks. `METRICS` lists every family, so that the documentation can be held against it.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.broker.assembly import Services
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.pipeline import PipelineStatus
from tailrace.model.stats import Histogram, SqlStats, StoreStats


class Counted(NamedTuple):
    """One number of the whole broker."""

    name: str
    text: str
    read: Callable[[Services], float]
    rises_only: bool = True


class CountedByTopic(NamedTuple):
    name: str
    text: str
    read: Callable[[LiveTopic], float]


class CountedByPipeline(NamedTuple):
    name: str
    text: str
    read: Callable[[PipelineStatus], float | None]
    """`None` where there is nothing to tell."""
    rises_only: bool = True


class Measured(NamedTuple):
    """A distribution that the store keeps."""

    name: str
    text: str
    read: Callable[[StoreStats], Histogram]


BY_TOPIC = (
    CountedByTopic("messages_in", "Messages written, by topic.", lambda live: live.messages_in),
    CountedByTopic("bytes_in", "Bytes of batches written, by topic.", lambda live: live.bytes_in),
    CountedByTopic("messages_out", "Messages handed to readers, by topic.", lambda live: live.messages_out),
    CountedByTopic("bytes_out", "Bytes handed to readers, by topic.", lambda live: live.bytes_out),
    CountedByTopic(
        "dedup_hits", "Messages that were duplicates and not written again, by topic.", lambda live: live.dedup_hits
    ),
    CountedByTopic(
        "dedup_evictions",
        "Message ids forgotten before their time to stay within dedup_entries.",
        lambda live: live.dedup_evictions,
    ),
    CountedByTopic(
        "retention_trimmed_messages", "Messages that retention took away, by topic.", lambda live: live.trimmed_records
    ),
)

BY_JOB = (("job_runs", "Background jobs that ended well."), ("job_failures", "Background jobs that failed."))

BY_PIPELINE = (
    CountedByPipeline(
        "pipeline_running", "1 while a pipeline runs, else 0.", lambda pipeline: pipeline.running, rises_only=False
    ),
    CountedByPipeline("pipeline_lag", "Changes that wait to be routed.", lambda pipeline: pipeline.lag, rises_only=False),
    CountedByPipeline(
        "pipeline_idle_seconds",
        "Since a pipeline published something.",
        lambda pipeline: pipeline.idle_seconds,
        rises_only=False,
    ),
    CountedByPipeline("pipeline_rows", "Changes that a pipeline has dealt with.", lambda pipeline: pipeline.report.rows),
    CountedByPipeline("pipeline_batches", "Batches of a pipeline.", lambda pipeline: pipeline.report.batches),
    CountedByPipeline(
        "pipeline_dead_letters", "Changes that went to dead letters.", lambda pipeline: pipeline.report.dead_letters
    ),
)

GROUP_LAG = ("group_lag", "Messages that a group has not dealt with yet, by group and topic.")
GROUP_STATES = ("group_states", "Consumer groups, by state.")
GROUP_GENERATIONS = ("group_generation", "The generation of each group that has or had members.")

HISTOGRAMS = (
    Measured("commit_seconds", "From the submission of a commit to its answer.", lambda stats: stats.commit_seconds),
    Measured("sync_seconds", "One write and sync of a group of commits.", lambda stats: stats.sync_seconds),
    Measured("commits_per_sync", "Commits that shared one sync.", lambda stats: stats.commits_per_sync),
    Measured("checkpoint_seconds", "Saving the index once.", lambda stats: stats.checkpoint_seconds),
)


def _of_store(name: str, text: str, read: Callable[[StoreStats], float], *, rises_only: bool = True) -> Counted:
    return Counted(name, text, lambda services: read(services.store.stats()), rises_only)


def _now(name: str, text: str, read: Callable[[Services], float]) -> Counted:
    return Counted(name, text, read, rises_only=False)


NUMBERS = (
    _now("topics", "Topics that there are.", lambda services: len(services.topics)),
    _now("partitions", "Partitions of all topics.", lambda services: services.topics.partition_count),
    _now("groups", "Consumer groups that are stored.", lambda services: len(services.offsets.groups)),
    _now("group_members", "Members of all groups.", lambda services: services.group_registry.members),
    Counted("group_rebalances", "Rebalances of all groups.", lambda services: services.group_registry.rebalances),
    Counted("groups_expired", "Groups forgotten after long silence.", lambda services: services.group_removal.expired),
    _now("end_cursor", "The cursor that the next record of the log will get.", lambda services: services.store.end_cursor()),
    _now("fetch_waiters", "Fetches that wait for records.", lambda services: len(services.waiting_fetches)),
    _now("subscribers", "Subscribers to patterns.", lambda services: services.subscriptions.subscribers),
    Counted("subscribers_cut", "Subscribers cut off because they were too slow.", lambda services: services.subscriptions.cut),
    Counted("subscription_messages", "Messages handed to subscribers.", lambda services: services.subscriptions.delivered),
    Counted("snapshot_rows", "Rows that snapshots of routes have told.", lambda services: services.snapshots.rows),
    _now(
        "running_snapshots",
        "Snapshots of routes that are not done.",
        lambda services: sum(map(len, services.snapshots.running.values())),
    ),
    _now("queues", "Groups of consumers that share records.", lambda services: len(services.queues)),
    _now(
        "queue_in_flight",
        "Records of queues that were handed out and are not done.",
        lambda services: services.queues.in_flight,
    ),
    _now("queue_waiters", "Consumers of queues that wait for a record.", lambda services: services.queues.waiters),
    Counted("queue_deliveries", "Records handed out by queues.", lambda services: services.queues.delivered),
    Counted("queue_redeliveries", "Of these, records that were handed out before.", lambda services: services.queues.repeated),
    Counted("queue_acks", "Records that consumers of queues are done with.", lambda services: services.queues.acknowledged),
    Counted("queue_late_receipts", "Receipts that did not count.", lambda services: services.queues.refused),
    Counted(
        "queue_dead_letters",
        "Records of queues that went to dead letters.",
        lambda services: services.queues.dead_letters.letters,
    ),
    Counted(
        "queue_missed",
        "Records that were gone, or could not be read, before a queue was done with them.",
        lambda services: services.queues.missed,
    ),
    Counted("payloads_stored", "Large values written beside the log.", lambda services: services.payloads.stored),
    Counted("payload_stored_bytes", "Bytes of these.", lambda services: services.payloads.stored_bytes),
    Counted(
        "payloads_found",
        "Large values that were there already and not written again.",
        lambda services: services.payloads.found,
    ),
    Counted(
        "payloads_removed", "Large values removed because nothing refers to them.", lambda services: services.payloads.removed
    ),
    Counted(
        "payloads_lost", "Reads that found a large value missing or damaged.", lambda services: services.payload_expansion.lost
    ),
    _now(
        "pending_payload_bytes",
        "Bytes of large values that wait to be written.",
        lambda services: services.payloads.pending_bytes,
    ),
    _now(
        "unsurveyed_bytes",
        "Bytes of records whose times the survey has yet to look at.",
        lambda services: services.survey.unsurveyed_bytes,
    ),
    _now(
        "answers_held_bytes",
        "Bytes that answers to readers hold, from before they are decoded until they are sent.",
        lambda services: services.answers.held_bytes,
    ),
    _now("answers_waiting", "Readers that wait for room for their answer.", lambda services: services.answers.waiting),
    Counted(
        "answers_refused",
        "Readers that got no room in time and were told to come again.",
        lambda services: services.answers.refused,
    ),
    Counted(
        "skipped_corrupt_messages",
        "Messages in batches that can't be decoded, left out by the readers' choice.",
        lambda services: services.answers.skipped,
    ),
    _now("queued_reads", "Reads that wait for the disk.", lambda services: services.threads.queued),
    _now("waiting_publishes", "Publishes that wait for room.", lambda services: services.committer.waiting),
    _now("waiting_publish_bytes", "Bytes of publishes that wait for room.", lambda services: services.committer.waiting_bytes),
    Counted("overloads", "Times that a publish found no room.", lambda services: services.committer.overloads),
    Counted("dedup_cleaned", "Message ids forgotten at the end of their window.", lambda services: services.dedup.cleaned),
    Counted(
        "producer_duplicates",
        "Messages that a producer sent again and that were found by their sequence.",
        lambda services: services.producers.duplicates,
    ),
    Counted("producers_expired", "Producers forgotten after long silence.", lambda services: services.producers.states.expired),
    Counted(
        "producers_evicted",
        "Producers forgotten early to stay within producers_per_partition.",
        lambda services: services.producers.states.evicted,
    ),
    _now("transactional_ids", "Transactional ids that are remembered.", lambda services: services.transaction_services.ids),
    _now("open_transactions", "Transactions that are open.", lambda services: services.transaction_services.open),
    Counted("transactions_committed", "Transactions committed.", lambda services: services.transaction_services.committed),
    Counted(
        "transactions_aborted",
        "Transactions aborted, for whatever reason.",
        lambda services: services.transaction_services.aborted,
    ),
    Counted(
        "transactions_timed_out",
        "Transactions aborted because they took too long.",
        lambda services: services.transaction_services.timed_out,
    ),
    _of_store("commits", "Commits made durable.", lambda stats: stats.commits),
    _of_store("commit_bytes", "Bytes of commits made durable.", lambda stats: stats.commit_bytes),
    _of_store("failed_commits", "Commits that storage could not take.", lambda stats: stats.failed_commits),
    _now("disk_full", "1 while records are refused because the disk has no room.", lambda services: services.store.is_full()),
    _of_store("pending_commits", "Commits that wait for their sync.", lambda stats: stats.pending_commits, rises_only=False),
    _of_store(
        "pending_bytes", "Bytes of commits that wait for their sync.", lambda stats: stats.pending_bytes, rises_only=False
    ),
    _of_store("fetches_from_memory", "Fetches answered from memory.", lambda stats: stats.fetches_from_memory),
    _of_store("fetches_from_disk", "Fetches that had to read the disk.", lambda stats: stats.fetches_from_disk),
    _of_store("disk_reads", "Pieces read from segment files.", lambda stats: stats.disk_reads),
    _of_store("disk_read_bytes", "Bytes read from segment files.", lambda stats: stats.disk_read_bytes),
    _of_store("cached_bytes", "Newest record bytes held in memory.", lambda stats: stats.cached_bytes, rises_only=False),
    _of_store("checkpoints", "Times that the index was saved.", lambda stats: stats.checkpoints),
    _of_store("segments", "Segment files of the log.", lambda stats: stats.segments, rises_only=False),
    _of_store("log_bytes", "Bytes of all segment files.", lambda stats: stats.log_bytes, rises_only=False),
    _of_store("segments_deleted", "Segments deleted because nothing in them was alive.", lambda stats: stats.segments_deleted),
    _of_store("segments_rewritten", "Segments rewritten without their dead part.", lambda stats: stats.segments_rewritten),
    _of_store("cleaned_bytes", "Bytes of disk that the cleaner gave back.", lambda stats: stats.cleaned_bytes),
    _of_store("replayed_frames", "Frames read again at the start.", lambda stats: stats.replayed_frames, rises_only=False),
    _of_store("replayed_bytes", "Log bytes read again at the start.", lambda stats: stats.replayed_bytes, rises_only=False),
    _of_store("replay_seconds", "How long that took.", lambda stats: stats.replay_seconds, rises_only=False),
    _of_store(
        "torn_bytes",
        "Bytes of an unfinished frame that were cut off at the start.",
        lambda stats: stats.torn_bytes,
        rises_only=False,
    ),
)

_PREFIX = "tailrace_"


class BrokerCollector(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        services = self._services
        topics = list(services.topics)
        for by_topic in BY_TOPIC:
            yield _labelled(by_topic.name, by_topic.text, "topic", ((live.topic.name, by_topic.read(live)) for live in topics))
        for (name, text), counts in zip(BY_JOB, (services.jobs.runs, services.jobs.failures), strict=True):
            yield _labelled(name, text, "job", counts.items())
        lags = GaugeMetricFamily(_PREFIX + GROUP_LAG[0], GROUP_LAG[1], labels=("group", "topic"))
        for labels, lag in sorted(services.offsets.total_lags().items()):
            lags.add_metric(labels, lag)
        yield lags
        yield _by_label(GROUP_STATES, "state", services.groups.states.items())
        yield _by_label(GROUP_GENERATIONS, "group", sorted(services.group_registry.generations.items()))
        pipelines = services.routing.pipeline_statuses()
        for each in BY_PIPELINE:
            values = [(pipeline.name, value) for pipeline in pipelines if (value := each.read(pipeline)) is not None]
            yield (
                _labelled(each.name, each.text, "pipeline", values)
                if each.rises_only
                else _by_label((each.name, each.text), "pipeline", values)
            )
        for counted in NUMBERS:
            family = CounterMetricFamily if counted.rises_only else GaugeMetricFamily
            yield family(_PREFIX + counted.name, counted.text, value=counted.read(services))
        stats = services.store.stats()
        for measured in HISTOGRAMS:
            yield _histogram(measured.name, measured.text, measured.read(stats))


class SqlCollector(Collector):
    def __init__(self, stats: SqlStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        yield _labelled(
            "sql_statements",
            "Statements of SQL that ended well, by kind.",
            "statement",
            sorted(stats.statements.copy().items()),
        )
        yield _counter("sql_failures", "Requests of SQL that ended with an error.", stats.failures)
        yield _labelled(
            "table_rows", "Rows inserted, updated and deleted, by table.", "table", sorted(stats.rows.copy().items())
        )
        yield _counter("table_transactions", "Transactions that changed tables.", stats.transactions)
        yield _gauge("waiting_table_writes", "Transactions that wait for the tables' writer.", stats.waiting_writes)
        yield _gauge("waiting_table_write_bytes", "Bytes of these.", stats.waiting_write_bytes)
        yield _counter(
            "table_rebuilds",
            "Times that the file of the tables was damaged and was made again from the log.",
            stats.rebuilds,
        )
        yield _counter("table_checkpoints", "Checkpoints of tables' rows that were put into the log.", stats.checkpoints)
        yield _by_label(
            ("table_checkpoint_rows", "Rows of checkpoints that are being taken which are in the log so far, by table."),
            "table",
            sorted(stats.checkpoint_rows.items()),
        )
        yield _gauge(
            "replayed_changes",
            "Changes that were applied to tables at the start, because their file lacked them.",
            stats.replayed_changes,
        )
        yield _histogram("table_write_seconds", "From the submission of a transaction to its answer.", stats.write_seconds)
        yield _histogram("table_transactions_per_commit", "Transactions that shared one commit.", stats.transactions_per_commit)


def _labelled(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    family = CounterMetricFamily(_PREFIX + name, text, labels=(label,))
    for key, value in values:
        family.add_metric((key,), value)
    return family


def _by_label(named: tuple[str, str], label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(_PREFIX + named[0], named[1], labels=(label,))
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
