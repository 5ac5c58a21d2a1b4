"""Schemas of `/api/queues`, and of `POST /api/queues/{group_id}/receive`, `/ack`, `/nack` and `/extend`."""

import msgspec

from tailrace.api.consume import CorruptBatchPolicy
from tailrace.api.messages import AtLeastOne, CorruptRange, NonNegative, ReadMessage
from tailrace.model.fetch import StartEdge
from tailrace.model.queue import DEFAULT_VISIBILITY_MS, RejectedReceipt


class ReceiveBody(msgspec.Struct, forbid_unknown_fields=True):
    pattern: str
    """The topics to read: a name, or a pattern such as `orders.*`."""
    max: AtLeastOne = 1
    wait_ms: NonNegative = 0
    visibility_ms: AtLeastOne = DEFAULT_VISIBILITY_MS
    """How long the records are invisible to other consumers."""
    order_by_key: bool = False
    """Deliver a record only when all earlier records with the same key are settled."""
    consumer: str = ""
    attempt: str = ""
    """Identifies this request among those of the consumer."""
    is_repeated: bool = False
    """The response to this attempt was lost: its records are returned to the queue first, as if never delivered."""
    max_deliveries: AtLeastOne | None = None
    """If set, changes the limit for the whole group."""
    start: StartEdge = StartEdge.EARLIEST
    """Where a new group starts in existing topics."""
    corrupt_batches: CorruptBatchPolicy = "report"
    """Whether a batch that can't be decoded is an error, once everything before it is delivered, or is skipped."""


class DeliveredMessage(msgspec.Struct):
    receipt: str
    deliveries: int
    """How often it was delivered, including this time."""
    message: ReadMessage


class ReceiveResponse(msgspec.Struct):
    messages: list[DeliveredMessage]
    corrupt: list[CorruptRange] = []
    """Batches that can't be decoded: those that were skipped, or the one that a later receive will report."""


class AckReceiptsBody(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str]


class NackReceiptsBody(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str]
    delay_ms: NonNegative = 0
    reason: str = ""
    """Kept with the dead letter, if it becomes one."""
    unseen: bool = False
    """The records were never processed, so this delivery does not count."""


class ExtendReceiptsBody(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str]
    visibility_ms: AtLeastOne = DEFAULT_VISIBILITY_MS
    """Counted from now."""


class ReceiptsResponse(msgspec.Struct):
    accepted: int
    refused: list[RejectedReceipt]
    """The rejected receipts, each with the reason. If all are rejected, the response is an error."""


class ShareView(msgspec.Struct):
    topic_name: str
    partition_id: int
    start_offset: int
    """All records before it are settled."""
    next_offset: int
    """No record from here on has been delivered yet."""
    end_offset: int
    in_flight: int
    """Records that consumers hold now."""
    to_repeat: int
    """Records that are waiting to be delivered again."""
    lag: int


class QueueView(msgspec.Struct):
    group_id: str
    max_deliveries: int
    waiting: int
    """Consumers that are waiting for a record."""
    in_flight: int
    lag: int
    partitions: list[ShareView]


class QueuePage(msgspec.Struct):
    queues: list[QueueView]
    next: str | None
