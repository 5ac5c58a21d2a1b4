"""Messages of logical replication are decoded, and malformed ones are refused."""

import contextlib
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.capture.pgoutput import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    MessageColumn,
    Origin,
    RelationMessage,
    RelationType,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Update,
    decode,
    relation_oid,
    without_xid,
    xid_in_stream,
)
from tailrace.model.errors import MalformedMessageError
from tests.unit.capture.messages import delete, insert, row, truncate, update

_LSN = 0xFFFFFFFF_00000001
_ROW = [b"1", None, ..., b""]
_CELLS = [b"1", None, UNCHANGED, b""]

_MESSAGES: list[tuple[bytes, Message]] = [
    (b"B" + pack(">QqI", _LSN, 5, 7), Begin(_LSN, POSTGRES_EPOCH_US + 5, 7)),
    (b"C" + pack(">BQQq", 0, 1, _LSN, -5), Commit(1, _LSN, POSTGRES_EPOCH_US - 5)),
    (b"O" + pack(">Q", 3) + b"north\0", Origin(3, "north")),
    (
        b"R\0\0\x40\0public\0t\0i\0\2\1id\0" + pack(">Ii", 23, -1) + "\0é\0".encode() + pack(">Ii", 1043, 9),
        RelationMessage(
            16384, "public", "t", "index", (MessageColumn("id", 23, -1, True), MessageColumn("é", 1043, 9, False))
        ),
    ),
    (b"R" + pack(">I", 1247) + b"\0pg_type\0n\0\0", RelationMessage(1247, "pg_catalog", "pg_type", "nothing", ())),
    (b"Y" + pack(">I", 16385) + b"public\0mood\0", RelationType(16385, "public", "mood")),
    (insert(*_ROW), Insert(16384, _CELLS)),
    (update(_ROW), Update(16384, None, [], _CELLS)),
    (update(_ROW, _ROW), Update(16384, "O", _CELLS, _CELLS)),
    (update(_ROW, [b"2", None], b"K"), Update(16384, "K", [b"2", None], _CELLS)),
    (delete(_ROW), Delete(16384, "K", _CELLS)),
    (delete(_ROW, b"O"), Delete(16384, "O", _CELLS)),
    (b"T" + pack(">IBII", 2, 3, 5, 6), Truncate((5, 6), 3)),
    (b"M" + pack(">BQ", 1, _LSN) + b"tailrace:a\0" + pack(">I", 2) + b"\0x", LogicalMessage(True, _LSN, "tailrace:a", b"\0x")),
    (b"S" + pack(">IB", 7, 1), StreamStart(7, True)),
    (b"E", StreamStop()),
    (b"c" + pack(">IBQQq", 7, 0, 1, 2, 3), StreamCommit(7, 1, 2, POSTGRES_EPOCH_US + 3)),
    (b"A" + pack(">II", 7, 8), StreamAbort(7, 8)),
]  # fmt: skip
_IN_STREAM = [(data, message) for data, message in _MESSAGES if data[:1] in (b"R", b"Y", b"I", b"U", b"D", b"T", b"M")]


@pytest.mark.parametrize(("data", "message"), _MESSAGES)
def test_messages_are_decoded(data: bytes, message: Message) -> None:
    assert decode(data) == message


@pytest.mark.parametrize(("data", "message"), _IN_STREAM)
def test_messages_inside_a_stream_have_the_id_of_their_transaction(data: bytes, message: Message) -> None:
    inside = data[:1] + pack(">I", 4_000_000_000) + data[1:]
    assert decode(inside, in_stream=True) == message
    assert xid_in_stream(inside) == 4_000_000_000
    assert without_xid(inside) == data


def test_the_relation_of_a_row_is_read_without_the_row() -> None:
    message = update(_ROW)
    assert relation_oid(message) == 16384
    assert relation_oid(message[:1] + b"\0\0\0\7" + message[1:], in_stream=True) == 16384
    with pytest.raises(MalformedMessageError):
        relation_oid(b"I\0\0\0")


@pytest.mark.parametrize(("data", "message"), [case for case in _MESSAGES if len(case[0]) > 1])
def test_messages_that_are_cut_off_or_too_long_are_refused(data: bytes, message: Message) -> None:
    for size in range(len(data)):
        with pytest.raises(MalformedMessageError):
            decode(data[:size])
    with pytest.raises(MalformedMessageError, match="1 bytes after its end"):
        decode(data + b"\0")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x", "unknown type b'x'"),
        (b"b" + bytes(30), "proto_version 2"),
        (b"I\0\0\0\1N\0\1b\0\0\0\1x", "binary format"),
        (b"I\0\0\0\1N\0\1x", "unexpected byte b'x' at 8"),
        (b"I\0\0\0\1O" + row([]), "unexpected byte b'O' at 5"),
        (b"D\0\0\0\1N" + row([]), "unexpected byte b'N' at 5"),
        (b"U\0\0\0\1K" + row([]) + b"O", "unexpected byte"),
        (b"R\0\0\0\1a\0b\0x\0\0", "unexpected byte b'x'"),
        (b"Y\0\0\0\1\xff\0b\0", "not UTF-8"),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xff", "cut off"),
        (b"T\xff\xff\xff\xff\0", "cut off"),
    ],
)
def test_malformed_messages_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        decode(data)


@given(st.binary(max_size=60), st.sampled_from(b"BCRYOIUDTMSEcA"), st.booleans())
def test_any_bytes_are_decoded_or_refused(data: bytes, tag: int, in_stream: bool) -> None:
    with contextlib.suppress(MalformedMessageError):
        decode(bytes([tag]) + data, in_stream=in_stream)


def test_a_truncate_names_its_relations() -> None:
    assert decode(truncate()) == Truncate((16384,), 0)
