"""Queues: requests of consumers, deliveries, results, and the status of a queue.

A queue is a group of consumers that share the records of topics. Each record is delivered to one of them with a receipt, by
which the consumer acknowledges or returns it.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from tailrace.model.errors import InvalidTopicNameError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.names import check_topic_name, is_reserved
from tailrace.model.record import Record

DEFAULT_VISIBILITY_MS = 30_000
DEFAULT_MAX_DELIVERIES = 5

CAUSE_HEADER = "dead_letter_cause"
GROUP_HEADER = "dead_letter_group"
DELIVERIES_HEADER = "dead_letter_deliveries"
ORIGIN_TOPIC_HEADER = "origin_topic"
ORIGIN_PARTITION_HEADER = "origin_partition"
ORIGIN_OFFSET_HEADER = "origin_offset"
ORIGIN_MESSAGE_ID_HEADER = "origin_message_id"
REDRIVEN_HEADER = "redriven"
"""The header that counts how often a record was redriven from dead letters."""

DEAD_LETTERS = "dead_letters"
"""The last part of the names of dead-letter topics."""


class RecordState(IntEnum):
    """The state of a record in a queue, by the numbers of Kafka's share groups."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Delivered to a consumer, which has it until a deadline."""
    ACKNOWLEDGED = 2
    """Acknowledged, and being written. Once that is durable, only the offset is remembered."""
    ARCHIVING = 3
    """Delivered too often, and being read to become a dead letter."""
    ARCHIVED = 4
    """Being written to the dead letters."""


class ReceiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    pattern: str
    max_records: int = 1
    wait_ms: int = 0
    visibility_ms: int = DEFAULT_VISIBILITY_MS
    order_by_key: bool = False
    owner: str = ""
    """The name that the consumer gives itself."""
    attempt: str = ""
    """An id of this request, unique for the consumer."""
    is_repeated: bool = False
    """The answer to an earlier request with this `attempt` was lost. Its records are returned first, as if not delivered."""
    max_deliveries: int | None = None
    """A new setting for the whole group. `None` leaves it as it is."""
    start: StartEdge = StartEdge.EARLIEST
    """Where a new group begins in topics that exist."""


class Delivery(NamedTuple):
    """A record that a consumer has until its visibility timeout."""

    topic: str
    partition: int
    record: Record
    receipt: str
    deliveries: int
    """How often the record was delivered, this time included."""


class RejectedReceipt(msgspec.Struct, frozen=True):
    """A receipt that was rejected, and why."""

    receipt: str
    detail: str
    is_done: bool = False
    """Whether the record is done: by another receipt, or by this one before the server was restarted."""


class SettleResult(NamedTuple):
    """The outcome of a request with receipts."""

    accepted: int
    refused: Sequence[RejectedReceipt]


class ShareStatus(NamedTuple):
    """The status of a queue in one partition."""

    topic: str
    partition: int
    start_offset: Offset
    """Everything before this offset is done."""
    next_offset: Offset
    """The first offset that was never delivered."""
    end_offset: Offset
    in_flight: int
    """Records that consumers have now."""
    to_repeat: int
    """Records that were returned and wait for another delivery."""
    lag: int
    """Records that are not done, counted by offsets."""


class QueueStatus(NamedTuple):
    group: str
    max_deliveries: int
    waiting: int
    """Consumers that wait for a record."""
    shares: Sequence[ShareStatus]


def dead_letter_topic(topic: str, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return the name of a topic's dead-letter topic. Topics with long names and reserved topics share one."""
    name = f"{topic}.{DEAD_LETTERS}"
    if is_reserved(name):
        return DEAD_LETTERS
    try:
        check_topic_name(name, limits)
    except InvalidTopicNameError:
        return DEAD_LETTERS
    return name
