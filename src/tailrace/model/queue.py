"""Queues as values: what a consumer asks for, what it gets, and how a queue stands.

A queue is a group of consumers that share the records of topics: each record goes to one of them, which says by its receipt
what became of it.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset
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
"""How often the record was put back from dead letters."""

DEAD_LETTERS = "dead_letters"
"""The last part of the names of topics of dead letters."""


class RecordState(IntEnum):
    """What a queue knows of a record, by the numbers of Kafka's share groups."""

    AVAILABLE = 0
    ACQUIRED = 1
    """One consumer has it, up to a deadline."""
    ACKNOWLEDGED = 2
    """Done, and on its way to the disk. After that it is known by its offset alone."""
    ARCHIVING = 3
    """Delivered too often: it is being read to be put among the dead letters."""
    ARCHIVED = 4
    """On its way there."""


class ReceiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    pattern: str
    max_records: int = 1
    wait_ms: int = 0
    visibility_ms: int = DEFAULT_VISIBILITY_MS
    order_by_key: bool = False
    owner: str = ""
    """Whatever the consumer calls itself."""
    attempt: str = ""
    """Names this request among those of the consumer."""
    is_repeated: bool = False
    """The answer to an earlier attempt of the same name was lost: what it took goes back first, as if it had not been taken."""
    max_deliveries: int | None = None
    """For the whole group from now on; as it is if left out."""
    start: StartEdge = StartEdge.EARLIEST
    """Where the group begins in topics that are there when it is made."""


class Delivery(NamedTuple):
    """A record that one consumer has until its visibility time-out."""

    topic: str
    partition: int
    record: Record
    receipt: str
    deliveries: int
    """How often it was handed out, this time included."""


class RejectedReceipt(msgspec.Struct, frozen=True):
    """A receipt that did not count, and why."""

    receipt: str
    detail: str
    is_done: bool = False
    """The record is done, by another receipt; or by this one, before the server was restarted."""


class SettleResult(NamedTuple):
    """What became of receipts."""

    accepted: int
    refused: Sequence[RejectedReceipt]


class ShareStatus(NamedTuple):
    """How a queue stands in one partition."""

    topic: str
    partition: int
    start_offset: Offset
    """Everything before it is done."""
    next_offset: Offset
    """From here on nothing was handed out yet."""
    end_offset: Offset
    in_flight: int
    """Records that consumers have now."""
    to_repeat: int
    """Records that were handed out and came back."""
    lag: int
    """Records that are not done, as far as offsets tell."""


class QueueStatus(NamedTuple):
    group: str
    max_deliveries: int
    waiting: int
    """Consumers that wait for a record."""
    shares: Sequence[ShareStatus]
