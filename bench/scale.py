"""How much work each benchmark does: enough to be meaningful, and no more.

A full run of everything takes about 75 minutes on two cores that have nothing else to do (`make bench ARGS=--plan`).
"""

import msgspec

from tailrace.model.limits import MIB

GIB = 1024 * MIB


class KafkaScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work at each of two servers over their Kafka listeners."""

    has_every_shape: bool
    """Whether all sizes, batches and numbers of partitions are combined."""
    rounds: int
    load_bytes: int
    """The bytes of a load, unless that is more than `load_records`."""
    load_records: int
    tool_records: int
    """The records that Kafka's own tools send and read."""
    compacted_bytes: int
    """The bytes of a topic that is compacted."""
    compactions: int
    reads: int
    """How often a load is read where reading is measured: once takes only a fifth of a second."""
    one_by_one: int
    """Records that are sent one at a time."""
    steady_seconds: float
    """How long records are sent at a steady rate, in each round."""
    connections: int
    turns: int
    """Records over each connection, in each round."""
    check_pairs: int
    """How often servers with and without authentication are started, to compare what checks cost."""
    check_rounds: int
    """Of each of these."""
    checked_one_by_one: int
    storm_seconds: float
    """How long clients log in beside a producer, in each round."""
    starts: int
    rest_seconds: float
    """How long a server may rest before its memory is measured again."""

    def records(self, record_bytes: int) -> int:
        return min(self.load_records, self.load_bytes // record_bytes)


class HttpScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work over HTTP, in each round."""

    rounds: int
    single_rows: int
    """Rows that are inserted one by one."""
    many_rows: int
    """Rows that are inserted a thousand at a time."""
    messages: int
    queried_records: int
    """The records of the topic that is counted."""
    subscribers: int
    fed_seconds: float
    """How long messages are published at a steady rate, to subscribers and during a query."""


class NatsScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work at Tailrace and at NATS, in each round."""

    rounds: int
    records: int
    synced_records: int
    one_by_one: int
    steady_seconds: float


class PostgresScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work at Tailrace and at PostgreSQL, in each round."""

    rounds: int
    points: int
    """Rows that are read by their keys."""
    single_rows: int
    many_rows: int
    table_rows: int
    topic_records: int


class CaptureScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work of captures of a table of PostgreSQL."""

    rounds: int
    changes: int
    """Changes that wait for a capture, in each round."""
    warm_up_changes: int
    """Changes before the first round that counts: Java is slow until it has compiled its hot code."""
    delay_rounds: int
    steady_seconds: float
    steady_warm_up_seconds: float
    """How long changes are written at a steady rate before their delay is measured."""
    snapshot_rows: int
    transaction_rows: int
    """Rows of one transaction, to see whether memory grows."""


class ShadowScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work of copies to a Kafka."""

    has_every_shape: bool
    """Whether all sizes of records and numbers of partitions are combined."""
    rounds: int
    copied_bytes: int
    """Of each topic, in each round."""
    warm_up_bytes: int
    """Copied before the first round that counts: Java is slow until it has compiled its hot code."""
    steady_seconds: float
    """How long records are sent at a steady rate, in each round."""


class GrowthScale(msgspec.Struct, frozen=True, kw_only=True):
    """The rising amounts of what grows, and the work that measures the cost."""

    rounds: int
    topics: tuple[int, ...]
    topic_calls: int
    """Appends and fetches over all topics, in each round."""
    groups: tuple[int, ...]
    commits: int
    connections: tuple[int, ...]
    connection_calls: int
    """Produces and fetches over all connections together, in each round."""
    routes: tuple[int, ...]
    routed_changes: int
    routed_a_batch: int


class SparkScale(msgspec.Struct, frozen=True, kw_only=True):
    """The work of Spark."""

    changes: int
    """Table changes that wait for the router, in each round."""
    changes_a_batch: int
    routed_rounds: int
    steady_seconds: float
    warm_up_seconds: float
    """How long changes are routed before their delay is measured: Java is slow until it has compiled its hot code."""
    long_seconds: float
    """How long changes are routed in real time in one go."""
    topic_rows: int
    """Records of a topic that is read, and of one that is written, in each round."""
    rounds: int
    flat_bytes: int
    """Records of a topic that is read completely, to see whether memory grows."""
    large_bytes: int
    """The same for the subject that measures only memory, and for routed changes."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int
    ring_bytes: int
    """The memory of the ring of batches: more than the tail cache and all commits in flight hold, so that no batch is reused
    while the store still has it."""
    append_bytes: int
    """Written by each side in each round, without syncs."""
    synced_bytes: int
    synced_rounds: int
    """Rounds of synced appends: one takes half a second, and the speed of the disk changes from second to second."""
    """Written by each side in each round, with syncs."""
    callers: int
    """Callers of tiny appends."""
    tiny_appends: int
    cached_bytes: int
    """Bytes that are filled into the tail cache and read repeatedly."""
    fetched_bytes: int
    """Read in each round."""
    interleaved_batches: int
    """Tiny batches, to a hundred partitions in turn."""
    killed_bytes: int
    """The size of a log of 16 KB batches that a killed process leaves."""
    killed_small_bytes: int
    """The size of such a log of 100 B batches."""
    killed_again_bytes: int
    """Written between two kills of the same folder of 16 KB batches."""
    killed_small_again_bytes: int
    topics: int
    partitions_per_topic: int
    growth_appends: int
    """Appends whose cost is measured."""
    partition_counts: tuple[int, ...]
    log_sizes: tuple[int, ...]
    """The rising sizes of a log, after the new log at 0."""
    behind_bytes: int
    """What a lagging reader has still to read."""
    sampled_seconds: float
    """How long each path is sampled for profiles."""
    kafka: KafkaScale
    http: HttpScale
    spark: SparkScale
    nats: NatsScale
    postgres: PostgresScale
    capture: CaptureScale
    shadow: ShadowScale
    growth: GrowthScale


FULL = Scale(
    rounds=5,
    ring_bytes=256 * MIB,
    append_bytes=GIB,
    synced_bytes=256 * MIB,
    synced_rounds=15,
    callers=1_000,
    tiny_appends=300_000,
    cached_bytes=48 * MIB,
    fetched_bytes=2 * GIB,
    interleaved_batches=200_000,
    killed_bytes=GIB,
    killed_small_bytes=200_000_000,
    killed_again_bytes=100 * MIB,
    killed_small_again_bytes=15_000_000,
    topics=10,
    partitions_per_topic=1_000,
    growth_appends=100_000,
    partition_counts=(1, 100, 10_000),
    log_sizes=(GIB, 3 * GIB, 10 * GIB),
    behind_bytes=512 * MIB,
    sampled_seconds=8,
    kafka=KafkaScale(
        has_every_shape=True,
        rounds=4,
        load_bytes=50_000_000,
        load_records=250_000,
        tool_records=1_000_000,
        compacted_bytes=10_000_000_000,
        compactions=1,
        reads=5,
        one_by_one=400,
        steady_seconds=2,
        connections=500,
        turns=10,
        check_pairs=3,
        check_rounds=6,
        checked_one_by_one=2_000,
        storm_seconds=6,
        starts=2,
        rest_seconds=12,
    ),
    http=HttpScale(
        rounds=4,
        single_rows=6_000,
        many_rows=200_000,
        messages=100_000,
        queried_records=10_000_000,
        subscribers=1_000,
        fed_seconds=3,
    ),
    spark=SparkScale(
        changes=1_000_000,
        changes_a_batch=200_000,
        routed_rounds=3,
        steady_seconds=15,
        warm_up_seconds=40,
        long_seconds=600,
        topic_rows=1_000_000,
        rounds=2,
        flat_bytes=GIB,
        large_bytes=10 * GIB,
    ),
    nats=NatsScale(rounds=4, records=40_000, synced_records=4_000, one_by_one=300, steady_seconds=1.5),
    postgres=PostgresScale(
        rounds=5, points=2_000, single_rows=500, many_rows=20_000, table_rows=5_000_000, topic_records=10_000_000
    ),
    capture=CaptureScale(
        rounds=3,
        changes=1_000_000,
        warm_up_changes=600_000,
        delay_rounds=2,
        steady_seconds=15,
        steady_warm_up_seconds=5,
        snapshot_rows=2_000_000,
        transaction_rows=10_000_000,
    ),
    shadow=ShadowScale(has_every_shape=True, rounds=3, copied_bytes=400_000_000, warm_up_bytes=200_000_000, steady_seconds=8),
    growth=GrowthScale(
        rounds=3,
        topics=(1, 10, 100, 1_000, 10_000),
        topic_calls=20_000,
        groups=(1, 10, 100, 1_000),
        commits=10_000,
        connections=(1, 10, 100, 1_000),
        connection_calls=5_000,
        routes=(1, 10, 100),
        routed_changes=400_000,
        routed_a_batch=50_000,
    ),
)

QUICK = msgspec.structs.replace(
    FULL,
    rounds=3,
    append_bytes=256 * MIB,
    synced_bytes=64 * MIB,
    synced_rounds=5,
    tiny_appends=60_000,
    fetched_bytes=256 * MIB,
    interleaved_batches=50_000,
    killed_bytes=256 * MIB,
    killed_small_bytes=10_000_000,
    killed_again_bytes=20 * MIB,
    killed_small_again_bytes=2_000_000,
    growth_appends=30_000,
    log_sizes=(128 * MIB, 512 * MIB),
    behind_bytes=192 * MIB,
    sampled_seconds=3,
    kafka=KafkaScale(
        has_every_shape=False,
        rounds=2,
        load_bytes=20_000_000,
        load_records=100_000,
        tool_records=500_000,
        compacted_bytes=1_000_000_000,
        compactions=2,
        reads=3,
        one_by_one=100,
        steady_seconds=1,
        connections=100,
        turns=5,
        check_pairs=1,
        check_rounds=5,
        checked_one_by_one=500,
        storm_seconds=3,
        starts=1,
        rest_seconds=12,
    ),
    http=HttpScale(
        rounds=3,
        single_rows=2_000,
        many_rows=50_000,
        messages=30_000,
        queried_records=1_000_000,
        subscribers=1_000,
        fed_seconds=2,
    ),
    spark=SparkScale(
        changes=300_000,
        changes_a_batch=100_000,
        routed_rounds=3,
        steady_seconds=5,
        warm_up_seconds=20,
        long_seconds=30,
        topic_rows=150_000,
        rounds=2,
        flat_bytes=256 * MIB,
        large_bytes=512 * MIB,
    ),
    nats=NatsScale(rounds=2, records=10_000, synced_records=1_000, one_by_one=50, steady_seconds=1),
    postgres=PostgresScale(rounds=3, points=500, single_rows=100, many_rows=5_000, table_rows=500_000, topic_records=1_000_000),
    capture=CaptureScale(
        rounds=2,
        changes=300_000,
        warm_up_changes=600_000,
        delay_rounds=1,
        steady_seconds=8,
        steady_warm_up_seconds=3,
        snapshot_rows=400_000,
        transaction_rows=1_000_000,
    ),
    shadow=ShadowScale(has_every_shape=False, rounds=2, copied_bytes=100_000_000, warm_up_bytes=100_000_000, steady_seconds=3),
    growth=GrowthScale(
        rounds=2,
        topics=(1, 10, 100, 1_000, 10_000),
        topic_calls=5_000,
        groups=(1, 10, 100, 1_000),
        commits=2_000,
        connections=(1, 10, 100, 1_000),
        connection_calls=1_000,
        routes=(1, 10),
        routed_changes=100_000,
        routed_a_batch=20_000,
    ),
)
