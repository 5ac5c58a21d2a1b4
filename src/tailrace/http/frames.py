"""Events as they are sent to subscribers: as Server-Sent Events and as messages of a WebSocket.

Encoding is done once for all subscribers that are sent the same batch.
"""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from tailrace.http.messages import to_read
from tailrace.http.problems import error_body
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Cursor
from tailrace.model.subscription import EventBatch

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

    def sse(self, batches: Sequence[EventBatch]) -> bytes:
        return b"".join(map(self._sse, batches))

    def websocket(self, batches: Sequence[EventBatch]) -> str:
        return '{"type":"events","events":[' + b",".join(map(self._json, batches)).decode() + "]}"


def sse_sign_of_life(position: Cursor) -> bytes:
    """A comment, and an id by which the client resumes later without looking at all that did not match."""
    return b": still here\nid: %d\n\n" % (position - 1) if position else b": still here\n\n"


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
