"""How often the broker cleans up, how patient it is with consumer groups, and which node it is."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    retention_interval_seconds: int = 60
    """Between two looks for records that are due to go."""
    dedup_interval_seconds: int = 60
    """Between two runs that forget expired message ids."""
    producer_interval_seconds: int = 600
    """Between two runs that forget silent producers."""
    group_interval_seconds: int = 600
    """Between two looks for groups that are due to go."""
    group_retention_seconds: int = 7 * 24 * 3600
    """How long a group without members keeps its offsets after its last sign of life."""
    group_initial_delay_ms: int = 100
    """How long the first rebalance of an empty group waits for more members."""
    group_min_session_ms: int = 6_000
    """The shortest session time-out that a member may ask for."""
    group_max_session_ms: int = 1_800_000
    """The longest session time-out that a member may ask for."""
    transaction_interval_seconds: int = 5
    """Between two looks for transactions that have lasted too long."""
    staging_interval_seconds: int = 600
    """Between two runs that forget batches which were staged and never published."""
    payload_interval_seconds: int = 60
    """Between two looks for payloads that nobody refers to."""
    survey_interval_seconds: int = 10
    """Between two looks for records whose times nobody has looked at yet."""
    survey_percent: int = 5
    """How much of one core these looks may take; 0 turns them off, and queries look for themselves."""
    node: int = 0
    """Part of every message id, 0 to 1023. Servers whose ids must not meet need different ones."""


DEFAULT_BROKER_SETTINGS = BrokerSettings()
