"""The smallest run that goes through all code."""

from bench.scale import KafkaScale, Scale
from tailrace.model.limits import KIB, MIB

TINY = Scale(
    rounds=1,
    ring_bytes=32 * MIB,
    append_bytes=2 * MIB,
    synced_bytes=2 * MIB,
    callers=50,
    tiny_appends=1_000,
    cached_bytes=2 * MIB,
    fetched_bytes=4 * MIB,
    interleaved_batches=2_000,
    killed_bytes=2 * MIB,
    killed_small_bytes=100 * KIB,
    killed_again_bytes=MIB,
    killed_small_again_bytes=100 * KIB,
    topics=2,
    partitions_per_topic=20,
    growth_appends=500,
    partition_counts=(1, 10),
    log_sizes=(2 * MIB,),
    behind_bytes=2 * MIB,
    kafka=KafkaScale(
        has_every_shape=False,
        rounds=1,
        load_bytes=200_000,
        load_records=500,
        one_by_one=3,
        steady_seconds=0.1,
        connections=3,
        turns=2,
        synced_turns=1,
        starts=1,
    ),
)
