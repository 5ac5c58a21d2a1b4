"""How often the broker cleans up, and which node it is."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    retention_interval_seconds: int = 60
    """Between two looks for records that are due to go."""
    dedup_interval_seconds: int = 60
    """Between two runs that forget expired message ids."""
    producer_interval_seconds: int = 600
    """Between two runs that forget silent producers."""
    node: int = 0
    """Part of every message id, 0 to 1023. Servers whose ids must not meet need different ones."""


DEFAULT_BROKER_SETTINGS = BrokerSettings()
