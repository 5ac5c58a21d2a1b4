"""How much each benchmark does: enough to mean something, little enough to wait for.

A full run of everything takes 25 minutes on two cores that have nothing else to do (`make bench ARGS=--plan`).
"""

import msgspec

from tailrace.model.limits import MIB

GIB = 1024 * MIB


class KafkaScale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done at each of two servers over their Kafka listeners."""

    has_every_shape: bool
    """Whether all sizes, batches and numbers of partitions are combined."""
    rounds: int
    load_bytes: int
    """Records of a load, all together, unless that is more than `load_records`."""
    load_records: int
    reads: int
    """How often a load is read where reading is judged: once takes a fifth of a second, too little to be measured well."""
    one_by_one: int
    """Records of which each waits for the one before it."""
    steady_seconds: float
    """How long records come at an even pace, in each round."""
    connections: int
    turns: int
    """Records over each connection, in each round."""
    starts: int
    rest_seconds: float
    """How long a server may recover from its load before its memory is looked at again."""

    def records(self, record_bytes: int) -> int:
        return min(self.load_records, self.load_bytes // record_bytes)


class HttpScale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is asked over HTTP, in each round."""

    rounds: int
    single_rows: int
    """Rows that are inserted one by one."""
    many_rows: int
    """Rows that are inserted a thousand at a time."""
    messages: int
    queried_records: int
    """Of the topic that is counted."""
    subscribers: int
    fed_seconds: float
    """How long messages come at an even pace, to subscribers and beside a query."""


class NatsScale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done at Tailrace and at NATS, in each round."""

    rounds: int
    records: int
    synced_records: int
    one_by_one: int
    steady_seconds: float


class GrowthScale(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of what grows, rising, and how much is done to see what it costs."""

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
    """How much goes through Spark."""

    changes: int
    """Changes of a table that wait for the router, in each round."""
    changes_a_batch: int
    routed_rounds: int
    steady_seconds: float
    topic_rows: int
    """Of a topic that is read, and of one that is written, in each round."""
    rounds: int
    flat_bytes: int
    """Of a topic that is read whole, to see whether memory grows with it."""
    large_bytes: int
    """The same for the subject that measures only that, and for changes that are routed."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int
    ring_bytes: int
    """Memory that batches are taken from, round and round. More than the tail cache and all commits in flight hold together,
    so that no batch is used again while the store still has it."""
    append_bytes: int
    """Written by each side in each round, without syncs."""
    synced_bytes: int
    synced_rounds: int
    """Of synced appends: a round takes half a second, and disk and processor change from second to second."""
    """Written by each side in each round, with syncs."""
    callers: int
    """Callers of tiny appends."""
    tiny_appends: int
    cached_bytes: int
    """Filled into the tail cache and read over and over."""
    fetched_bytes: int
    """Read in each round."""
    interleaved_batches: int
    """Tiny batches, over a hundred partitions in turn."""
    killed_bytes: int
    """Log of 16 KB batches that a killed process leaves behind."""
    killed_small_bytes: int
    """The same of 100 B batches."""
    killed_again_bytes: int
    """Written between two kills of the same folder of 16 KB batches."""
    killed_small_again_bytes: int
    topics: int
    partitions_per_topic: int
    growth_appends: int
    """Appends whose cost is taken."""
    partition_counts: tuple[int, ...]
    log_sizes: tuple[int, ...]
    """Sizes that a log is grown to, rising, after the new log at 0."""
    behind_bytes: int
    """What a reader far behind has still to read."""
    sampled_seconds: float
    """How long each path is sampled, where profiles are asked for."""
    kafka: KafkaScale
    http: HttpScale
    spark: SparkScale
    nats: NatsScale
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
        reads=5,
        one_by_one=400,
        steady_seconds=2,
        connections=500,
        turns=10,
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
        topic_rows=1_000_000,
        rounds=2,
        flat_bytes=GIB,
        large_bytes=10 * GIB,
    ),
    nats=NatsScale(rounds=4, records=40_000, synced_records=4_000, one_by_one=300, steady_seconds=1.5),
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
        reads=3,
        one_by_one=100,
        steady_seconds=1,
        connections=100,
        turns=5,
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
        topic_rows=150_000,
        rounds=2,
        flat_bytes=256 * MIB,
        large_bytes=512 * MIB,
    ),
    nats=NatsScale(rounds=2, records=10_000, synced_records=1_000, one_by_one=50, steady_seconds=1),
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
