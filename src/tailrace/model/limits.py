"""Every bound of the system, in one place. What is over a bound is refused with an error that names it."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults follow the documents that the product unites; each can be set in the configuration file under `[limits]`."""

    topic_segments: int = 16
    """Parts of a topic's name between dots."""
    topic_name_length: int = 249
    """Characters of a topic's name, as in Kafka."""
    topics: int = 1_000
    partitions: int = 10_000
    """Partitions of all topics together."""
    payload_bytes: int = MIB
    """Bytes of one record's value."""
    key_bytes: int = 64 * KIB
    """Bytes of one record's key."""
    headers: int = 32
    """Headers of one record."""
    header_bytes: int = 4 * KIB
    """Bytes of one header's value."""
    batch_bytes: int = MIB + 64 * KIB
    """Bytes of one record batch as stored."""
    batch_records: int = 50_000
    decompressed_batch_bytes: int = 16 * MIB
    publish_records: int = 10_000
    """Records in one atomic publish."""
    frame_bytes: int = 64 * MIB
    """Bytes of one commit."""
    groups: int = 1_000
    group_members: int = 100
    group_name_length: int = 255
    offset_metadata_bytes: int = 4 * KIB
    producers_per_partition: int = 10_000
    dedup_entries: int = 1_000_000
    """Remembered ids of one topic; beyond it the oldest are forgotten early, and counted."""
    pending_commits: int = 100_000
    """Commits that wait for their sync."""
    pending_bytes: int = 64 * MIB
    """Bytes of commits that wait for their sync."""
    publish_wait_ms: int = 10_000
    """How long a publisher waits for room before it is told to come again."""
    fetch_bytes: int = 8 * MIB
    fetch_wait_ms: int = 30_000
    fetch_waiters: int = 10_000
    """Long polls that wait at the same time."""
    group_commit_bytes: int = 8 * MIB
    """Bytes written before one sync."""
    tail_cache_bytes: int = 64 * MIB
    """Newest record bytes kept in memory for readers at the tail."""
    index_cache_bytes: int = 16 * MIB
    """Index pieces kept in memory for readers far behind."""
    open_segments: int = 128
    """Segment files held open for reading."""
    read_threads: int = 2
    """Threads that read from disk for readers far behind."""
    min_free_bytes: int = 64 * MIB
    """Free disk below which nothing new is taken."""
    request_bytes: int = 16 * MIB
    """Bytes of one HTTP body or Kafka request."""


DEFAULT_LIMITS = Limits()
