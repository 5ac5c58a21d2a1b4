"""How the log is laid out on disk and how often it is maintained. Not settings of users; tests make them tiny."""

import msgspec

from tailrace.model.limits import KIB, MIB


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    segment_bytes: int = 128 * MIB
    """A segment that has reached this size is closed and a new one begun."""
    piece_bytes: int = 512 * KIB
    """With `fsync`: the disk begins to write half of a group, or this much if that is more, while the rest is encoded."""
    checkpoint_bytes: int = 256 * MIB
    """Log bytes after which the index is saved, which bounds the replay at the next start."""
    checkpoint_batches: int = 100_000
    """Batches after which the index is saved."""
    relaxed_sync_seconds: float = 0.1
    """With `relaxed` durability: how long written bytes may wait for their sync."""
    index_chunk_batches: int = 256
    """Batches that share one entry of the index on disk."""
    cursor_stride_bytes: int = 64 * KIB
    """Log bytes between two entries of the cursor index."""
    span_bytes: int = 4 * MIB
    """The most bytes that are read from disk at once."""
    gap_bytes: int = 64 * KIB
    """Batches that are closer together than this are read at once, with what is between them."""
    clean_dead_ratio: float = 0.5
    """A segment is rewritten when at least this part of its bytes is no longer needed."""
    clean_interval_seconds: float = 60.0
    """Pause between two passes of the cleaner."""
    compaction_share: float = 0.5
    """Which part of the time a compaction works; the rest of the time it leaves the processor to others."""
    cache_seconds: float = 5.0
    """How long the newest batches stay in memory at least, if the cache has space for them; twice as long at most."""


DEFAULT_OPTIONS = LogOptions()
