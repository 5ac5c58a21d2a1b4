"""Fast path of the message codec for fetch responses.

Every fetch is answered by it. The fields around the batches are written here and the batches are passed on as they are,
because copying them into the response would cost more than all other work of a fetch together.
`tests/property/test_fast_fetch.py` holds the bytes equal to those of `MessageCodec`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from tailrace.model.commit import Buffer
from tailrace.wire.message import NO_UUID
from tailrace.wire.message_codec import write_count, write_string
from tailrace.wire.varints import write_unsigned_varint

SESSIONS_SINCE = 7
_LOG_START_SINCE = 5
_PREFERRED_REPLICA_SINCE = 11
_FLEXIBLE_SINCE = 12
IDS_SINCE = 13

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HEAD = Struct(">i")
_HEAD_WITH_SESSION = Struct(">ihi")
_PARTITION = Struct(">ihqq")
_ABORTED = Struct(">qq")

_NO_PREFERRED_REPLICA = _INT32.pack(-1)
_JOINED_BELOW_BYTES = 4096
"""Batches that are smaller on average are copied into one buffer: to pass them on one by one would cost more."""


class FetchedPartition(NamedTuple):
    number: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    batches: Sequence[Buffer]
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of each aborted transaction, for readers of committed records."""


class FetchedTopic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: Sequence[FetchedPartition]


def write_fetch_response(
    version: int, topics: Sequence[FetchedTopic], error_code: int = 0, session_id: int = 0
) -> list[Buffer]:
    """Return the body of a response as buffers to be sent one after another."""
    parts: list[Buffer] = []
    out = bytearray()
    flexible = version >= _FLEXIBLE_SINCE
    out += _HEAD_WITH_SESSION.pack(0, error_code, session_id) if version >= SESSIONS_SINCE else _HEAD.pack(0)
    write_count(out, len(topics), flexible)
    for name, topic_id, partitions in topics:
        if version >= IDS_SINCE:
            out += topic_id.bytes if topic_id is not NO_UUID else bytes(16)
        else:
            write_string(out, name, flexible)
        write_count(out, len(partitions), flexible)
        for partition in partitions:
            out += _PARTITION.pack(
                partition.number, partition.error_code, partition.high_watermark, partition.last_stable_offset
            )
            if version >= _LOG_START_SINCE:
                out += _INT64.pack(partition.log_start_offset)
            _write_aborted(out, partition.aborted, flexible)
            if version >= _PREFERRED_REPLICA_SINCE:
                out += _NO_PREFERRED_REPLICA
            batches = partition.batches
            size = sum(map(len, batches))
            if flexible:
                write_unsigned_varint(out, size + 1)
            else:
                out += _INT32.pack(size)
            if batches:
                if size < _JOINED_BELOW_BYTES * len(batches):
                    for batch in batches:
                        out += batch
                else:
                    parts.append(out)
                    parts += batches
                    out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        parts.append(out)
    return parts


def _write_aborted(out: bytearray, aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> None:
    if aborted is None:
        out += b"\0" if flexible else _INT32.pack(-1)
        return
    write_count(out, len(aborted), flexible)
    for producer_id, first_offset in aborted:
        out += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            out.append(0)
