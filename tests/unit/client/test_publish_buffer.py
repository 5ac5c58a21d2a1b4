"""Messages that wait to be published are encoded, batched and bounded."""

import json
import math
import re
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tailrace.client import InvalidRequestError, OutgoingMessage, PublisherConfig
from tailrace.client.publish_buffer import PendingMessages, PublishBuffer, encode_message, encode_publish, to_outgoing_message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (OutgoingMessage("t", {"a": [1]}), {"topic": "t", "value": {"a": [1]}}),
        (OutgoingMessage("t", "text"), {"topic": "t", "value": "text"}),
        (OutgoingMessage("t", None), {"topic": "t", "value": None}),
        (OutgoingMessage("t", b"\xff"), {"topic": "t", "value_base64": "/w=="}),
        (OutgoingMessage("t", b""), {"topic": "t", "value_base64": ""}),
        (OutgoingMessage("t", 1, "k"), {"topic": "t", "value": 1, "key": "k"}),
        (OutgoingMessage("t", 1, b"\xff"), {"topic": "t", "value": 1, "key_base64": "/w=="}),
        (OutgoingMessage("t", 1, "", message_id="m", partition_id=0, timestamp_ms=0), None),
        (
            OutgoingMessage("t", 1, headers={"h": "x", "b": b"\xff", "n": None}),
            {
                "topic": "t",
                "value": 1,
                "headers": [{"name": "h", "value": "x"}, {"name": "b", "value_base64": "/w=="}, {"name": "n"}],
            },
        ),
    ],
)
def test_a_message_is_sent_as_the_server_takes_it(message: OutgoingMessage, expected: Any) -> None:
    sent = json.loads(bytes(encode_message(message)))
    if expected is None:
        expected = {"topic": "t", "value": 1, "key": "", "message_id": "m", "partition_id": 0, "timestamp_ms": 0}
    assert sent == expected


@pytest.mark.parametrize("key", [5, 1 << 40, 1.5, True, ["a"]])
def test_a_key_is_text_or_bytes(key: Any) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf"the key for 'a' is {re.escape(repr(key))}, which is neither text nor bytes"
    ):
        encode_message(OutgoingMessage("a", 1, key=key))


def test_a_header_is_text_or_bytes() -> None:
    with pytest.raises(InvalidRequestError, match=r"the header 'n' is 5, which is neither text nor bytes; pass str\(5\)"):
        encode_message(OutgoingMessage("a", 1, headers={"n": 5}))  # type: ignore[dict-item]


@pytest.mark.parametrize("message", ["ab", ("a",), ["a", 1], {"topic": "a", "value": 1}])
def test_a_message_of_a_batch_is_a_topic_and_a_value(message: Any) -> None:
    with pytest.raises(InvalidRequestError, match="pass an OutgoingMessage, or a topic and a value"):
        to_outgoing_message(message)


def test_what_is_neither_bytes_nor_json_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="neither bytes nor JSON"):
        encode_message(OutgoingMessage("t", object()))


class Price(msgspec.Struct):
    amount: float


@pytest.mark.parametrize("value", [math.nan, -math.inf, {"a": [1, math.nan]}, (math.inf, None), {math.nan}, Price(math.inf)])
def test_a_number_that_json_does_not_have_is_rejected_and_not_sent_as_null(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"the value for 't' has the number (nan|-?inf), which JSON can't represent"):
        encode_message(OutgoingMessage("t", value))


@pytest.mark.parametrize("value", [{"a": None}, ["null"], {"raw": msgspec.Raw(b"null")}, {"a": 1.5, "b": [None, Price(2)]}])
def test_nulls_that_the_caller_passes_are_sent(value: Any) -> None:
    assert json.loads(bytes(encode_message(OutgoingMessage("t", value))))["value"] == json.loads(msgspec.json.encode(value))


def pending(*sizes: int) -> PendingMessages[str]:
    return PendingMessages([Raw(b"x" * size) for size in sizes], sum(sizes), "outcome")


def test_pending_messages_are_taken_whole_up_to_the_bounds_of_a_request() -> None:
    buffer: PublishBuffer[str] = PublishBuffer(PublisherConfig(batch_records=3, batch_bytes=100))
    given = [pending(10), pending(10, 10), pending(10), pending(95), pending(200), pending(1)]
    for each in given:
        buffer.put(each)
    taken = []
    while len(buffer):
        taken.append(buffer.take())
    assert taken == [given[0:2], given[2:3], given[3:4], given[4:5], given[5:6]]
    assert (buffer.records, buffer.size) == (0, 0)


def test_there_is_room_up_to_the_bounds_and_always_for_one() -> None:
    buffer: PublishBuffer[str] = PublishBuffer(PublisherConfig(buffer_records=2, buffer_bytes=100))
    assert buffer.has_room(pending(1, 1, 1))
    buffer.put(pending(50))
    assert buffer.has_room(pending(50))
    assert not buffer.has_room(pending(51))
    assert not buffer.has_room(pending(1, 1))


def test_a_request_names_the_publisher_and_its_number() -> None:
    body = encode_publish('p"1', 7, [PendingMessages([encode_message(OutgoingMessage(topic, 1))], 1, "") for topic in "tu"])
    messages = [{"topic": "t", "value": 1}, {"topic": "u", "value": 1}]
    assert json.loads(body) == {"publisher": 'p"1', "number": 7, "messages": messages}
