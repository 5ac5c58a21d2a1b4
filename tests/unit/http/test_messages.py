"""Messages are converted between JSON and bytes without loss."""

import base64

import msgspec
import pytest

from tailrace.api.consume import ConsumeBody
from tailrace.api.messages import PublishBody
from tailrace.api.tables import AddRouteBody
from tailrace.api.topics import CreateTopicBody
from tailrace.http.messages import to_messages, to_read_message
from tailrace.http.requests import read_body
from tailrace.model.errors import InvalidRequestError
from tailrace.model.ids import Offset
from tailrace.model.record import Record


def shown(value: bytes | None, key: bytes | None = None) -> dict[str, object]:
    record = to_read_message("a", 0, Record(key, value, (), 5, Offset(7)))
    return dict(msgspec.json.decode(msgspec.json.encode(record)))


@pytest.mark.parametrize("text", ['{"a": 1.00}', "[1,\n2]", '"\u00e9"', "12345678901234567890123", "true", '""'])
def test_json_is_shown_as_json(text: str) -> None:
    assert shown(text.encode())["value"] == msgspec.json.decode(text)


@pytest.mark.parametrize("data", [b"", b"\xff", b'"\xff"', b"{", b"1 2", b"nan", b"null", b" null ", b"\x00"])
def test_what_is_not_json_is_shown_as_bytes(data: bytes) -> None:
    record = shown(data)
    assert "value" not in record
    assert base64.b64decode(str(record["value_base64"])) == data


def test_no_value_is_null_and_nothing_else_is() -> None:
    assert shown(None)["value"] is None
    assert "value" not in shown(b"null")


def test_keys_are_text_where_they_can_be() -> None:
    assert shown(None, "Zoë".encode())["key"] == "Zoë"
    assert shown(None, b"\xff")["key_base64"] == "/w=="
    assert shown(None, None)["key"] is None


def test_null_is_a_tombstone_and_a_missing_value_is_a_mistake() -> None:
    (message,) = to_messages(read_body(b'{"messages": [{"topic": "a", "value": null}]}', PublishBody).messages)
    assert message.value is None
    with pytest.raises(InvalidRequestError, match="message 1 needs one of value"):
        to_messages(read_body(b'{"messages": [{"topic": "a", "value": 1}, {"topic": "a"}]}', PublishBody).messages)


def test_two_keys_are_a_mistake() -> None:
    body = b'{"messages": [{"topic": "a", "value": 1, "key": "k", "key_base64": "aw=="}]}'
    with pytest.raises(InvalidRequestError, match="message 0 has both key"):
        to_messages(read_body(body, PublishBody).messages)


@pytest.mark.parametrize(
    ("body", "shape", "message"),
    [
        (
            b'{"topic": "a", "start": "sideways"}',
            ConsumeBody,
            "`$.start`; it can be 'earliest' or 'latest' or an integer or an object with timestamp_ms",
        ),
        (
            b'{"topic": "a", "source_table": "b", "operations": ["drop"]}',
            AddRouteBody,
            "it can be 'delete' or 'insert' or 'update'",
        ),
        (b'{"name": "a", "settings": {"dedup": "x"}}', CreateTopicBody, "`$.settings.dedup`; it can be 'content' or 'id'"),
        (b'{"topic": 1}', ConsumeBody, "Expected `str`, got `int` - at `$.topic`"),
        (b'{"mesages": []}', PublishBody, "unknown field `mesages`; it can have messages, publisher, number"),
        (
            b'{"messages": [{"topic": "a", "headers": [{"nme": "b"}]}]}',
            PublishBody,
            "unknown field `nme` - at `$.messages[0].headers[0]`; it can have name, value, value_base64",
        ),
        (b'{"topic": "a", "start": {"time": 1}}', ConsumeBody, "unknown field `time` - at `$.start`; it can have timestamp_ms"),
    ],
)
def test_a_wrong_value_is_answered_with_the_allowed_ones(body: bytes, shape: type, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_body(body, shape)
    assert str(refused.value).endswith(message)
