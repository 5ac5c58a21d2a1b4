"""A short way to read the produce request that is sent most: one batch for one partition, outside of transactions.

It gives what `Codec` gives for the same bytes. Where anything is not as expected it gives nothing, and leaves the request to
`Codec`, which also says what is wrong with it.
"""

from struct import Struct
from uuid import UUID

from tailrace.wire.message import NO_UUID
from tailrace.wire.message_fields import Source, read_unsigned_varint
from tailrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_FLEXIBLE_SINCE = 9
_IDS_SINCE = 13

_HEAD = Struct(">BhiB")
"""Length of the transactional id, acks, time-out, count of topics."""
_PARTITION = Struct(">Bi")
"""Count of partitions, number of the first."""
_NULL = 0
_ONE = 2
"""Counts and lengths are one more than what they count, and null is 0."""
_UUID_BYTES = 16
_LONGEST_NAME = 126
"""Longer ones have a length of two bytes."""
_END = bytes(3)
"""No tagged fields of the partition, of the topic, of the request."""


def read_lone_batch(source: Source, version: int) -> ProduceRequest | None:
    begin, end, data = source.at, source.end, source.data
    at = begin + _HEAD.size
    if version < _FLEXIBLE_SINCE or at >= end:
        return None
    transactional_id, acks, timeout_ms, topics = _HEAD.unpack_from(data, begin)
    if transactional_id != _NULL or topics != _ONE:
        return None
    name, topic_id = "", NO_UUID
    name_bytes = _UUID_BYTES if version >= _IDS_SINCE else data[at] - 1
    if version < _IDS_SINCE:
        at += 1
    after_name = at + name_bytes
    if not 0 <= name_bytes <= _LONGEST_NAME or after_name + _PARTITION.size >= end:
        return None
    if version >= _IDS_SINCE:
        topic_id = UUID(bytes=bytes(data[at:after_name]))
    else:
        name = str(data[at:after_name], "utf-8")
    partitions, number = _PARTITION.unpack_from(data, after_name)
    if partitions != _ONE:
        return None
    source.at = after_name + _PARTITION.size
    size = read_unsigned_varint(source) - 1
    at = source.at
    if size < 0 or at + size + len(_END) != end or data[at + size :] != _END:
        source.at = begin
        return None
    source.at = end
    partition = PartitionProduceData(index=number, records=data[at : at + size])
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=(partition,))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(topic,))
