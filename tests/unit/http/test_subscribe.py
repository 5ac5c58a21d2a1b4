"""Events are encoded for Server-Sent Events and WebSockets."""

import gc
import json
from weakref import ref

import pytest

from tailrace.http.subscribe import EncodedOnce, EventEncoder, sse_keepalive, websocket_keepalive
from tailrace.model.consume import EventBatch
from tailrace.model.ids import Cursor, Offset
from tailrace.model.record import Record


def batch(*values: bytes, cursor: int = 10) -> EventBatch:
    return EventBatch(
        "a.b",
        1,
        [Record(b"k", value, (), 5, Offset(number), Cursor(cursor + number)) for number, value in enumerate(values)],
    )


def test_a_batch_is_encoded_once_and_forgotten_with_it() -> None:
    calls = []

    def encode(events: EventBatch) -> bytes:
        calls.append(len(events.records))
        return b"encoded"

    once = EncodedOnce(encode)
    events = batch(b"1")
    assert (once(events), once(events), calls) == (b"encoded", b"encoded", [1])
    gone = ref(events)
    del events
    gc.collect()
    assert gone() is None
    assert once(batch(b"1")) == b"encoded"
    assert calls == [1, 1]


def test_both_protocols_carry_the_same_events() -> None:
    batches = [batch(b'{"a": 1}', b"\xff"), batch(b"null", cursor=20)]
    frames = EventEncoder()
    sent = json.loads(frames.websocket(batches))
    assert sent["type"] == "events"
    lines = frames.sse(batches).decode().split("\n")
    assert [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")] == sent["events"]
    assert [line for line in lines if line.startswith("id: ")] == ["id: 10", "id: 11", "id: 20"]
    assert [event.get("value_base64") for event in sent["events"]] == [None, "/w==", "bnVsbA=="]


@pytest.mark.parametrize("value", [b'{\n"a": 1\n}', b"[1,\r\n2]", b"[1,\r2]"])
def test_no_line_of_a_value_is_taken_for_a_field(value: bytes) -> None:
    sent = EventEncoder().sse([batch(value)]).decode()
    assert "\r" not in sent
    head, *data, end, _ = sent.split("\n")
    assert (head, end) == ("id: 10", "")
    assert json.loads("\n".join(line.removeprefix("data: ") for line in data))["value"] == json.loads(value)


def test_keepalives_name_the_last_cursor_passed() -> None:
    assert sse_keepalive(Cursor(5)) == b": still here\nid: 4\n\n"
    assert b"id" not in sse_keepalive(Cursor(0))
    assert json.loads(websocket_keepalive(Cursor(5))) == {"type": "alive", "cursor": 4}
