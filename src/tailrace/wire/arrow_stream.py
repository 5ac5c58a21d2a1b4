"""Splits an Arrow IPC stream into its messages, and reads of their heads what is needed before Arrow gets them.

Arrow's own reader pulls from a file, and decompresses and allocates whatever a message asks for. Here a stream may arrive in
parts of any size, and the head of a message says how long it is and whether its buffers are compressed. Heads are flatbuffers
(`Message.fbs` in Arrow's `format/`).
"""

import struct
from typing import NamedTuple

_CONTINUATION = 0xFFFF_FFFF
_PREFIX_BYTES = 8
_MAX_HEAD_BYTES = 16 * 1024 * 1024
_RECORD_BATCH = 3
_DICTIONARY_BATCH = 2


class InvalidStreamError(ValueError):
    """The bytes are not an Arrow IPC stream."""


class StreamMessage(NamedTuple):
    data: bytes
    """The message as Arrow reads it, with its prefix and its body."""
    is_batch: bool
    is_compressed: bool
    rows: int
    """The rows of a record batch."""


class MessageSplitter:
    """Takes the parts of a stream and returns the messages that they complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.is_ended = False
        """Whether the mark at the end of the stream was received. A stream without it was cut off."""

    def feed(self, data: bytes) -> list[StreamMessage]:
        """Return the messages that this part completes. Raises `InvalidStreamError`."""
        self._buffer += data
        found: list[StreamMessage] = []
        at = 0
        while not self.is_ended and len(self._buffer) - at >= _PREFIX_BYTES:
            mark, head_bytes = struct.unpack_from("<Ii", self._buffer, at)
            if mark != _CONTINUATION or not 0 <= head_bytes <= _MAX_HEAD_BYTES:
                raise InvalidStreamError("invalid prefix of a message")
            if head_bytes == 0:
                self.is_ended = True
                break
            head_end = at + _PREFIX_BYTES + head_bytes
            if len(self._buffer) < head_end:
                break
            head = _read_head(bytes(self._buffer[at + _PREFIX_BYTES : head_end]))
            end = head_end + head.body_bytes
            if len(self._buffer) < end:
                break
            found.append(StreamMessage(bytes(self._buffer[at:end]), head.is_batch, head.is_compressed, head.rows))
            at = end
        del self._buffer[:at]
        return found


class _Head(NamedTuple):
    body_bytes: int
    is_batch: bool
    is_compressed: bool
    rows: int


def _read_head(data: bytes) -> _Head:
    try:
        message = _root(data)
        kind_at, header_at, length_at = (_field(data, message, number) for number in (1, 2, 3))
        kind = data[kind_at] if kind_at else 0
        body_bytes = struct.unpack_from("<q", data, length_at)[0] if length_at else 0
        is_compressed, rows = False, 0
        if kind in (_RECORD_BATCH, _DICTIONARY_BATCH) and header_at:
            batch = header_at + struct.unpack_from("<I", data, header_at)[0]
            if kind == _DICTIONARY_BATCH:
                inner = _field(data, batch, 1)
                batch = inner + struct.unpack_from("<I", data, inner)[0]
            rows_at = _field(data, batch, 0)
            rows = struct.unpack_from("<q", data, rows_at)[0] if rows_at else 0
            is_compressed = bool(_field(data, batch, 3))
    except (struct.error, IndexError) as error:
        raise InvalidStreamError("invalid head of a message") from error
    if body_bytes < 0 or rows < 0:
        raise InvalidStreamError("a message has a negative length")
    return _Head(body_bytes, kind == _RECORD_BATCH, is_compressed, rows)


def _root(data: bytes) -> int:
    return int(struct.unpack_from("<I", data, 0)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is, or 0 if it has its default."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise InvalidStreamError("invalid head of a message")
    at = 4 + 2 * number
    if at + 2 > struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + at)[0])
    return table + offset if offset else 0
