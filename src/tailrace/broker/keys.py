"""The keys of the broker's state in the store. Every state key is built here.

Keys begin with a readable word; numbers follow in big-endian order, so that ranges are sorted. The state of a topic has the
topic's id first, so that it is deleted with the topic by its prefix.
"""

from struct import Struct

from tailrace.model.ids import Offset, PartitionId, ProducerId, RouteId, ShadowId, SourceId, TableId, TopicId, ViewId
from tailrace.model.topic import TOPIC_KEYS

TOPICS = TOPIC_KEYS
PATTERN_TOPICS = b"pattern_topic/"
"""Patterns that are read as topics and in which groups have committed offsets."""
TABLES = b"table/"
VIEWS = b"view/"
TYPES = b"type/"
SOURCES = b"source/"
SOURCE_TABLES = b"source_table/"
SOURCE_SNAPSHOTS = b"source_snapshot/"
SHADOWS = b"shadow/"
USERS = b"user/"
ROLES = b"role/"
TOKENS = b"token/"
GRANTS = b"grant/"
QUOTAS = b"quota/"
SNAPSHOTS = b"snapshot/"
ROUTE_BLOCKS = b"route_block/"
_CHECKPOINTS = b"checkpoint/"
_UNFINISHED_CHECKPOINTS = b"unfinished_checkpoint/"
_IDENTITY_NUMBERS = b"identity_numbers/"
GROUPS = b"group/"
OFFSETS = b"offset/"
PRODUCERS = b"producer/"
TRANSACTIONS = b"transaction/"
PIPELINES = b"pipeline/"
MARKS = b"mark/"
WRITES = b"write/"
QUEUES = b"queue/"
SHARES = b"share/"
_REDRIVEN = b"redriven/"
PUBLISHERS = b"publisher/"
PAYLOADS = b"payload/"
_PAYLOAD_USES = b"payload_use/"
_PENDING_OFFSETS = b"pending_offsets/"
OPEN_TRANSACTIONS = b"open/"
_ABORTED = b"aborted/"
_COMPACTIONS = b"compaction/"
_DEDUP = b"dedup/"
OLD_TIMES = b"times/"
"""What earlier versions knew of the oldest timestamps of records. The index knows it now, and a start deletes the keys."""

IDENTITY = b"identity"
DECOY_KEY = b"decoy_key"
"""A secret from which the salts are made that are shown for users that there are not."""
CHECKED_FROM = b"checked_from"
LAST_TOPIC_ID = b"counter/topic"
LAST_TABLE_ID = b"counter/table"
LAST_VIEW_ID = b"counter/view"
LAST_SOURCE_ID = b"counter/source"
LAST_SHADOW_ID = b"counter/shadow"
LAST_USER_ID = b"counter/user"
NEXT_PRODUCER_ID = b"counter/producer"
MESSAGE_ID_MARK = b"counter/message_id"

_ID = Struct(">I")
_ID_LENGTH = Struct(">IH")
_PRODUCER = Struct(">IIq")
_LENGTH = Struct(">H")
_PARTITION = Struct(">II")
_OFFSET = Struct(">q")
_RECORD = Struct(">IIq")
_EXPIRY = Struct(">Q")

_ENTRY = b"/entry/"
_EXPIRES = b"/expires/"
_COUNT = b"/count"


def topic_key(topic_id: TopicId) -> bytes:
    return TOPICS + _ID.pack(topic_id)


def pattern_topic_key(topic_id: TopicId) -> bytes:
    return PATTERN_TOPICS + _ID.pack(topic_id)


def pattern_topic_of(key: bytes) -> TopicId:
    return TopicId(_ID.unpack_from(key, len(PATTERN_TOPICS))[0])


def table_key(table_id: TableId) -> bytes:
    return TABLES + _ID.pack(table_id)


def type_key(name: str) -> bytes:
    return TYPES + name.lower().encode()


def view_key(view_id: ViewId) -> bytes:
    return VIEWS + _ID.pack(view_id)


def source_key(source_id: SourceId) -> bytes:
    return SOURCES + _ID.pack(source_id)


def source_snapshot_key(source_id: SourceId) -> bytes:
    return SOURCE_SNAPSHOTS + _ID.pack(source_id)


def source_of_snapshot(key: bytes) -> SourceId:
    """Return the source of a key from `source_snapshot_key`."""
    return SourceId(_ID.unpack_from(key, len(SOURCE_SNAPSHOTS))[0])


def source_table_key(table_id: TableId) -> bytes:
    return SOURCE_TABLES + _ID.pack(table_id)


def shadow_key(shadow_id: ShadowId) -> bytes:
    return SHADOWS + _ID.pack(shadow_id)


def user_key(name: str) -> bytes:
    return USERS + name.encode()


def role_key(name: str) -> bytes:
    return ROLES + name.encode()


def token_key(token_id: str) -> bytes:
    return TOKENS + token_id.encode()


def grant_key(digest: bytes) -> bytes:
    """Return the key of a grant, by a digest of all that it says: one that is made twice is there once."""
    return GRANTS + digest


def quota_key(digest: bytes) -> bytes:
    """Return the key of the quotas of a user or client, by a digest of its names."""
    return QUOTAS + digest


def route_block_key(changes: TopicId) -> bytes:
    return ROUTE_BLOCKS + _ID.pack(changes)


def checkpoint_key(table_id: TableId) -> bytes:
    """Return the key of the newest complete checkpoint of the table's rows."""
    return _CHECKPOINTS + _ID.pack(table_id)


def unfinished_checkpoint_key(table_id: TableId) -> bytes:
    """Return the key of the checkpoint that is being written."""
    return _UNFINISHED_CHECKPOINTS + _ID.pack(table_id)


def identity_numbers_key(table_id: TableId) -> bytes:
    """Return the key of the last numbers of the table's identity columns."""
    return _IDENTITY_NUMBERS + _ID.pack(table_id)


def snapshot_key(route_id: RouteId) -> bytes:
    return SNAPSHOTS + _ID.pack(route_id)


def group_key(group: str) -> bytes:
    return GROUPS + group.encode()


def group_of(key: bytes) -> str:
    return key[len(GROUPS) :].decode()


def offsets_of_topic(topic_id: TopicId) -> bytes:
    return OFFSETS + _ID.pack(topic_id)


def offsets_of_group(topic_id: TopicId, group: str) -> bytes:
    # The length comes before the name, so that no group's keys are a prefix of those of another.
    name = group.encode()
    return OFFSETS + _ID_LENGTH.pack(topic_id, len(name)) + name


def offset_key(partition: PartitionId, group: str) -> bytes:
    return offsets_of_group(partition.topic_id, group) + _ID.pack(partition.number)


def read_offset_key(key: bytes) -> tuple[PartitionId, str]:
    topic_id, length = _ID_LENGTH.unpack_from(key, len(OFFSETS))
    name_at = len(OFFSETS) + _ID_LENGTH.size
    (number,) = _ID.unpack_from(key, name_at + length)
    return PartitionId(TopicId(topic_id), number), key[name_at : name_at + length].decode()


def producers_of_topic(topic_id: TopicId) -> bytes:
    return PRODUCERS + _ID.pack(topic_id)


def producers_of_partition(partition: PartitionId) -> bytes:
    return PRODUCERS + _ID.pack(partition.topic_id) + _ID.pack(partition.number)


def producer_key(partition: PartitionId, producer_id: int) -> bytes:
    return PRODUCERS + _PRODUCER.pack(partition.topic_id, partition.number, producer_id)


def read_producer_key(key: bytes) -> tuple[PartitionId, ProducerId]:
    topic_id, number, producer_id = _PRODUCER.unpack_from(key, len(PRODUCERS))
    return PartitionId(TopicId(topic_id), number), ProducerId(producer_id)


def transaction_key(transactional_id: str) -> bytes:
    return TRANSACTIONS + transactional_id.encode()


def transactional_id_of(key: bytes) -> str:
    return key[len(TRANSACTIONS) :].decode()


def pending_offsets_key(transactional_id: str, group: str) -> bytes:
    name = transactional_id.encode()
    return _PENDING_OFFSETS + _LENGTH.pack(len(name)) + name + group.encode()


def pipeline_key(name: str) -> bytes:
    return PIPELINES + name.encode()


def pipeline_of(key: bytes) -> str:
    return key[len(PIPELINES) :].decode()


def marks_of(pipeline: str) -> bytes:
    name = pipeline.encode()
    return MARKS + _LENGTH.pack(len(name)) + name


def mark_key(pipeline: str, source: str) -> bytes:
    return marks_of(pipeline) + source.encode()


def pipeline_of_mark(key: bytes) -> str:
    start = len(MARKS) + _LENGTH.size
    (length,) = _LENGTH.unpack_from(key, len(MARKS))
    return key[start : start + length].decode()


def write_key(writer: str) -> bytes:
    return WRITES + writer.encode()


def writer_of(key: bytes) -> str:
    return key[len(WRITES) :].decode()


def publisher_key(name: str) -> bytes:
    return PUBLISHERS + name.encode()


def queue_key(group: str) -> bytes:
    return QUEUES + group.encode()


def queue_of(key: bytes) -> str:
    return key[len(QUEUES) :].decode()


def shares_of_topic(topic_id: TopicId) -> bytes:
    return SHARES + _ID.pack(topic_id)


def shares_of_queue(topic_id: TopicId, group: str) -> bytes:
    name = group.encode()
    return SHARES + _ID_LENGTH.pack(topic_id, len(name)) + name


def share_key(partition: PartitionId, group: str) -> bytes:
    return shares_of_queue(partition.topic_id, group) + _ID.pack(partition.number)


def read_share_key(key: bytes) -> tuple[PartitionId, str]:
    topic_id, length = _ID_LENGTH.unpack_from(key, len(SHARES))
    name_at = len(SHARES) + _ID_LENGTH.size
    (number,) = _ID.unpack_from(key, name_at + length)
    return PartitionId(TopicId(topic_id), number), key[name_at : name_at + length].decode()


def redriven_of_topic(topic_id: TopicId) -> bytes:
    return _REDRIVEN + _ID.pack(topic_id)


def redriven_key(partition: PartitionId) -> bytes:
    return _REDRIVEN + _PARTITION.pack(*partition)


def open_transactions_of_topic(topic_id: TopicId) -> bytes:
    return OPEN_TRANSACTIONS + _ID.pack(topic_id)


def open_transactions_of_partition(partition: PartitionId) -> bytes:
    return OPEN_TRANSACTIONS + _PARTITION.pack(*partition)


def open_transaction_key(partition: PartitionId, producer_id: int) -> bytes:
    return OPEN_TRANSACTIONS + _PRODUCER.pack(partition.topic_id, partition.number, producer_id)


def read_open_transaction_key(key: bytes) -> tuple[PartitionId, ProducerId]:
    topic_id, number, producer_id = _PRODUCER.unpack_from(key, len(OPEN_TRANSACTIONS))
    return PartitionId(TopicId(topic_id), number), ProducerId(producer_id)


def aborted_of_topic(topic_id: TopicId) -> bytes:
    return _ABORTED + _ID.pack(topic_id)


def aborted_of_partition(partition: PartitionId) -> bytes:
    return _ABORTED + _PARTITION.pack(*partition)


def aborted_key(partition: PartitionId, last_offset: Offset) -> bytes:
    return aborted_of_partition(partition) + _OFFSET.pack(last_offset)


def aborted_bound(last_offset: Offset) -> bytes:
    """Return the start of a range within a partition: aborted transactions that end at this offset or later."""
    return _OFFSET.pack(last_offset)


def last_offset_of_aborted(key: bytes) -> Offset:
    (last_offset,) = _OFFSET.unpack_from(key, len(_ABORTED) + _PARTITION.size)
    return Offset(last_offset)


def payload_key(partition: PartitionId, offset: Offset) -> bytes:
    """Return the key of a record's reference to a payload."""
    return PAYLOADS + _RECORD.pack(*partition, offset)


def payloads_of_partition(partition: PartitionId) -> bytes:
    return PAYLOADS + _PARTITION.pack(*partition)


def after_partition(partition: PartitionId) -> bytes:
    """Return the start of a range within all references: those of later partitions."""
    return _RECORD.pack(*partition, (1 << 63) - 1)


def read_payload_key(key: bytes) -> tuple[PartitionId, Offset]:
    topic_id, number, offset = _RECORD.unpack_from(key, len(PAYLOADS))
    return PartitionId(TopicId(topic_id), number), Offset(offset)


def payload_uses(digest: bytes) -> bytes:
    """Return the prefix of the records that refer to a payload."""
    return _PAYLOAD_USES + digest


def payload_use_key(digest: bytes, partition: PartitionId, offset: Offset) -> bytes:
    return payload_uses(digest) + _RECORD.pack(*partition, offset)


def compaction_key(partition: PartitionId) -> bytes:
    """Return the key of what is known of the compactions of a partition."""
    return _COMPACTIONS + _PARTITION.pack(*partition)


def compactions_of_topic(topic_id: TopicId) -> bytes:
    return _COMPACTIONS + _ID.pack(topic_id)


def dedup_of_topic(topic_id: TopicId) -> bytes:
    return _DEDUP + _ID.pack(topic_id)


def dedup_count_key(topic_id: TopicId) -> bytes:
    return dedup_of_topic(topic_id) + _COUNT


def dedup_entry_key(topic_id: TopicId, fingerprint: bytes) -> bytes:
    return dedup_of_topic(topic_id) + _ENTRY + fingerprint


def dedup_expiries(topic_id: TopicId) -> bytes:
    return dedup_of_topic(topic_id) + _EXPIRES


def dedup_expiry_key(topic_id: TopicId, expires_ms: int, fingerprint: bytes) -> bytes:
    return dedup_expiries(topic_id) + _EXPIRY.pack(expires_ms) + fingerprint


def fingerprint_of_expiry(topic_id: TopicId, key: bytes) -> bytes:
    return key[len(dedup_expiries(topic_id)) + _EXPIRY.size :]


def expiry_bound(expires_ms: int) -> bytes:
    """Return the end of a range within the expiries of a topic: entries that expire at this time or before are below it."""
    return _EXPIRY.pack(expires_ms + 1)
