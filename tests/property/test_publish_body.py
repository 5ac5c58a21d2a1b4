"""What a publisher encodes is, to the server's schema, the messages that were published."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tailrace.api.messages import PublishBody, SentMessage
from tailrace.client import OutgoingMessage
from tailrace.client.publish_buffer import PendingMessages, encode_message, encode_publish

texts = st.text(max_size=20)
data = st.binary(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
header_values = st.none() | texts | data
messages = st.builds(
    OutgoingMessage,
    topic=texts,
    value=values | data | data.map(bytearray) | data.map(lambda given: memoryview(given)) | st.just(Raw(b"null")),
    key=st.none() | texts | data,
    headers=st.dictionaries(texts, header_values, max_size=3) | st.lists(st.tuples(texts, header_values), max_size=3),
    message_id=st.none() | texts,
    partition_id=st.none() | st.integers(0, 2**31 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
)


@given(publisher=texts, number=st.integers(1, 2**63 - 1), batches=st.lists(st.lists(messages, max_size=3), max_size=3))
def test_the_server_reads_what_was_published(publisher: str, number: int, batches: list[list[OutgoingMessage]]) -> None:
    pendings = [PendingMessages([encode_message(message) for message in batch], 0, None) for batch in batches]
    body = msgspec.json.decode(encode_publish(publisher, number, pendings), type=PublishBody)
    assert (body.publisher, body.number) == (publisher, number)
    assert list(map(read, body.messages)) == [meant(message) for batch in batches for message in batch]


class Meaning(NamedTuple):
    """What a message is, however it is encoded."""

    topic: str
    payload: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    message_id: str | None
    partition_id: int | None
    timestamp_ms: int | None


def meant(message: OutgoingMessage) -> Meaning:
    value, headers = message.value, message.headers
    payload: bytes | None
    if isinstance(value, (bytes, bytearray, memoryview)):
        payload = bytes(value)
    else:
        payload = None if value is None else msgspec.json.encode(value)
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Meaning(
        message.topic,
        payload,
        as_bytes(message.key),
        [(name, as_bytes(of)) for name, of in pairs],
        message.message_id,
        message.partition_id,
        message.timestamp_ms,
    )


def read(message: SentMessage) -> Meaning:
    if isinstance(message.value, Raw):
        assert message.value_base64 is None
        payload = None if bytes(message.value) == b"null" else bytes(message.value)
    else:
        assert message.value_base64 is not None
        payload = message.value_base64
    return Meaning(
        message.topic,
        payload,
        either(message.key, message.key_base64),
        [(header.name, either(header.value, header.value_base64)) for header in message.headers],
        message.message_id,
        message.partition_id,
        message.timestamp_ms,
    )


def either(text: str | None, data: bytes | None) -> bytes | None:
    assert text is None or data is None
    return as_bytes(text) if data is None else data


def as_bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
