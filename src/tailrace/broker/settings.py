"""Settings of the broker: intervals of background jobs, timeouts of consumer groups, and the node number."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    retention_interval_seconds: int = 60
    """Seconds between two runs of retention."""
    compaction_interval_seconds: int = 15
    """Seconds between two runs of compaction."""
    compaction_roll_seconds: int = 3600
    """How long compaction leaves the segment alone that is written to, at most, if a partition in it is due."""
    dedup_interval_seconds: int = 60
    """Seconds between two runs that delete expired message ids."""
    producer_interval_seconds: int = 600
    """Seconds between two runs that delete idle producers."""
    group_interval_seconds: int = 600
    """Seconds between two runs that delete expired groups."""
    group_retention_seconds: int = 7 * 24 * 3600
    """How long a group without members keeps its offsets after its last activity."""
    group_initial_delay_ms: int = 100
    """How long the first rebalance of an empty group waits for more members."""
    group_min_session_ms: int = 6_000
    """The shortest session timeout that a member may ask for."""
    group_max_session_ms: int = 1_800_000
    """The longest session timeout that a member may ask for."""
    transaction_interval_seconds: int = 5
    """Seconds between two runs that abort transactions after their timeout."""
    staging_interval_seconds: int = 600
    """Seconds between two runs that delete batches which were staged and never published."""
    payload_interval_seconds: int = 60
    """Seconds between two runs that remove unused payloads."""
    node: int = 0
    """Part of every message id, 0 to 1023. Servers whose message ids must differ need different nodes."""


DEFAULT_BROKER_SETTINGS = BrokerSettings()
