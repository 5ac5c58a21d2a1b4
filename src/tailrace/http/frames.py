"""Events as they are sent to subscribers: as Server-Sent Events and as messages of a WebSocket.

Encoding is done once for all subscribers that are sent the same batch.
"""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from tailrace.http.consuming import CorruptRange
from tailrace.http.messages import to_read
from tailrace.http.problems import error_body
from tailrace.model.consume import EventBatch
from tailrace.model.errors import TailraceError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.ids import Cursor

SSE_TYPE = "text/event-stream"


class EncodedOnce:
    """The encoding of batches, remembered as long as the batches are."""

    def __init__(self, encode: Callable[[EventBatch], bytes]) -> None:
        self._encode = encode
        self._encoded: WeakKeyDictionary[EventBatch, bytes] = WeakKeyDictionary()

    def __call__(self, batch: EventBatch) -> bytes:
        encoded = self._encoded.get(batch)
        if encoded is None:
            encoded = self._encoded[batch] = self._encode(batch)
        return encoded


class Frames:
    def __init__(self) -> None:
        self._sse = EncodedOnce(_sse_events)
        self._json = EncodedOnce(_json_events)

    def sse(self, batches: Sequence[EventBatch], corrupt: Sequence[CorruptBatch] = ()) -> bytes:
        """`corrupt`: batches that are left out because they can't be decoded."""
        left_out = (b"event: corrupt\ndata: %b\n\n" % msgspec.json.encode(CorruptRange(*batch)) for batch in corrupt)
        return b"".join((*left_out, *map(self._sse, batches)))

    def websocket(self, batches: Sequence[EventBatch], corrupt: Sequence[CorruptBatch] = ()) -> str:
        left_out = b',"corrupt":' + msgspec.json.encode([CorruptRange(*batch) for batch in corrupt]) if corrupt else b""
        return b"".join((b'{"type":"events","events":[', b",".join(map(self._json, batches)), b"]", left_out, b"}")).decode()


def sse_sign_of_life(position: Cursor) -> bytes:
    """A comment, and an id by which the client resumes later without looking at all that did not match."""
    return b": still here\nid: %d\n\n" % (position - 1) if position else b": still here\n\n"


def websocket_error(error: TailraceError) -> str:
    return f'{{"type":"error","error":{error_body(error).decode()}}}'


def websocket_sign_of_life(position: Cursor) -> str:
    return f'{{"type":"alive","cursor":{position - 1}}}'


def sse_error(error: TailraceError) -> bytes:
    return b"event: error\ndata: %b\n\n" % error_body(error)


def _sse_events(batch: EventBatch) -> bytes:
    parts = []
    for record in batch.records:
        data = msgspec.json.encode(to_read(batch.topic, batch.partition, record))
        if b"\n" in data or b"\r" in data:
            # The value's own line breaks, which JSON has only between its words.
            data = b"\ndata: ".join(data.splitlines())
        parts.append(b"id: %d\ndata: %b\n\n" % (record.cursor, data))
    return b"".join(parts)


def _json_events(batch: EventBatch) -> bytes:
    return msgspec.json.encode([to_read(batch.topic, batch.partition, record) for record in batch.records])[1:-1]
