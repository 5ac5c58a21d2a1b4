"""Messages are compared with kio's, an independent description of the protocol, in every API, version and direction."""

import io
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tailrace.model.errors import MalformedMessageError
from tailrace.wire.message import Api, FieldKind, KafkaMessage, MessageField, describe
from tailrace.wire.message_codec import MessageCodec, MessageSource
from tailrace.wire.messages.groups import DeletableGroupResult
from tailrace.wire.messages.transactions import TxnOffsetCommitResponseTopic
from tools.generate_messages import APIS, FAMILIES, NEWER, TARGET, generated_apis, module_text, top_class, versions_of

CODEC = MessageCodec()
ERROR_CODES = sorted(code.value for code in ErrorCode)
MAX_ITEMS = 1_000
PRIMITIVES: dict[FieldKind, st.SearchStrategy[Any]] = {
    FieldKind.BOOLEAN: st.booleans(),
    FieldKind.INT8: st.integers(-128, 127),
    FieldKind.INT16: st.integers(-(2**15), 2**15 - 1),
    FieldKind.INT32: st.integers(-(2**31), 2**31 - 1),
    FieldKind.INT64: st.integers(-(2**63), 2**63 - 1),
    FieldKind.FLOAT64: st.floats(allow_nan=False),
    FieldKind.UUID: st.uuids() | st.just(UUID(int=0)),
    FieldKind.STRING: st.text(max_size=200),
    FieldKind.BYTES: st.binary(max_size=200),
    FieldKind.RECORDS: st.binary(max_size=200),
}


EVERY_VERSION = [
    pytest.param(name, api, version, side, id=f"{name}-{version}-{side}")
    for name, api in zip(APIS, generated_apis(), strict=True)
    for version in range(api.lowest, api.highest + 1)
    for side in ("request", "response")
]


def messages(shape: type[KafkaMessage], version: int) -> st.SearchStrategy[KafkaMessage]:
    fields = [field for field in describe(shape) if field.since <= version <= field.until]
    return st.builds(shape, **{field.name: values(field, version) for field in fields})


def values(field: MessageField, version: int) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any]
    if not isinstance(field.kind, FieldKind):
        one = messages(field.kind, version)
    elif field.name.endswith("error_code"):
        one = st.sampled_from(ERROR_CODES)
    elif field.name.endswith("_ms"):
        # kio turns these into dates and spans, which have a narrower range.
        one = st.integers(0, 2**31 - 1)
    else:
        one = PRIMITIVES[field.kind]
    if field.is_array:
        one = st.lists(one, max_size=3).map(tuple)
    return one | st.none() if version >= field.nullable_since else one


def written(message: KafkaMessage, version: int, flexible: bool) -> bytes:
    out = bytearray()
    CODEC.write(message, version, flexible, out)
    return bytes(out)


@pytest.mark.parametrize(("name", "api", "version", "side"), EVERY_VERSION)
def test_bytes_are_those_of_kio_and_come_back_as_the_same_message(name: str, api: Api, version: int, side: str) -> None:
    shape: type[KafkaMessage] = getattr(api, side)
    theirs = top_class(name, version, side) if version in versions_of(name) else None
    flexible = api.is_flexible(version)

    @settings(max_examples=10, deadline=None, database=None)
    @given(messages(shape, version))
    def check(message: KafkaMessage) -> None:
        data = written(message, version, flexible)
        if theirs is not None:
            entity, size = entity_reader(theirs)(data, 0)
            assert size == len(data)
            again = io.BytesIO()
            entity_writer(theirs)(again, entity)
            assert again.getvalue() == data
        source = MessageSource(data)
        assert CODEC.read(shape, version, flexible, source) == message
        assert source.at == len(data)

    check()


def test_versions_that_kio_lacks_are_described_one_by_one() -> None:
    """When kio knows them, the descriptions here go."""
    lacking = {
        name: api.highest for name, api in zip(APIS, generated_apis(), strict=True) if api.highest not in versions_of(name)
    }
    assert lacking == {name: newer.version for name, newer in NEWER.items()}


def test_the_newer_versions_are_those_of_kafkas_descriptions() -> None:
    by_name = {api.name: api for api in generated_apis()}
    deleted = by_name["DeleteGroups"]
    result = deleted.response(results=(DeletableGroupResult(group_id="g", error_code=69, error_message="gone"),))
    assert written(result, 3, True) == bytes(4) + b"\x02\x02g\x00\x45\x05gone\x00\x00"
    assert written(result, 2, True) == bytes(4) + b"\x02\x02g\x00\x45\x00\x00"
    committed = by_name["TxnOffsetCommit"]
    topic = TxnOffsetCommitResponseTopic(name="t", topic_id=UUID(int=5))
    assert written(committed.response(topics=(topic,)), 6, True) == bytes(4) + b"\x02" + UUID(int=5).bytes + b"\x01\x00\x00"
    assert written(committed.response(topics=(topic,)), 5, True) == bytes(4) + b"\x02\x02t\x01\x00\x00"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EVERY_VERSION), st.data())
def test_garbage_and_torn_messages_are_rejected_and_nothing_else(where: Any, data: st.DataObject) -> None:
    _, api, version, side = where.values
    shape = getattr(api, side)
    flexible = api.is_flexible(version)
    whole = written(data.draw(messages(shape, version)), version, flexible)
    cut = data.draw(st.integers(0, len(whole)))
    noise = whole[:cut] + data.draw(st.binary(max_size=64)) + whole[cut + data.draw(st.integers(0, 8)) :]
    for bad in (whole[:cut], noise):
        with suppress(MalformedMessageError):
            CODEC.read(shape, version, flexible, MessageSource(bad, max_items=MAX_ITEMS))


@pytest.mark.parametrize("flexible", [False, True])
def test_an_array_that_counts_more_elements_than_there_are_bytes_is_rejected_before_it_is_made(flexible: bool) -> None:
    api = next(api for api in generated_apis() if api.name == "Metadata")
    data = b"\xff\xff\xff\xff\x0f" if flexible else b"\x7f\xff\xff\xff"
    with pytest.raises(MalformedMessageError, match="an array counts"):
        CODEC.read(api.request, 12 if flexible else 1, flexible, MessageSource(data + bytes(100)))


def test_the_elements_of_one_message_are_bounded() -> None:
    api = next(api for api in generated_apis() if api.name == "Metadata")
    source = MessageSource((1001).to_bytes(4) + bytes(2 * 1001), max_items=1000)
    with pytest.raises(MalformedMessageError, match="request_items"):
        CODEC.read(api.request, 1, False, source)


def test_a_length_of_more_than_five_bytes_is_rejected() -> None:
    api = next(api for api in generated_apis() if api.name == "Metadata")
    with pytest.raises(MalformedMessageError, match="more than 5 bytes"):
        CODEC.read(api.request, 12, True, MessageSource(b"\xff" * 100))


def test_unknown_tagged_fields_are_skipped() -> None:
    api = next(api for api in generated_apis() if api.name == "ListGroups")
    plain = written(api.request(), 5, True)
    tagged = plain[:-1] + b"\x01\x63\x03abc"
    assert CODEC.read(api.request, 5, True, MessageSource(tagged)) == api.request()


def test_fields_of_other_versions_are_left_out_and_read_as_their_defaults() -> None:
    api = next(api for api in generated_apis() if api.name == "Metadata")
    message = msgspec.structs.replace(api.request(), allow_auto_topic_creation=False)
    assert CODEC.read(api.request, 3, False, MessageSource(written(message, 3, False))) == api.request()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_generated_modules_say_what_kio_says(family: str) -> None:
    """The layout is not compared, because the formatter makes it."""
    generated = {line.strip().rstrip(",") for line in module_text(family).splitlines() if ": " in line and "import" not in line}
    there = {line.strip().rstrip(",") for line in (TARGET / f"{family}.py").read_text().splitlines()}
    assert generated - there == set()
