"""A routed change becomes a record of its topic."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import msgspec
import pytest

from tailrace.model.errors import CorruptionError
from tailrace.model.ids import Cursor, Offset, RouteId
from tailrace.model.record import Record
from tailrace.model.route import Operation, PayloadMode
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.routing import ChangeEvent, KeyValue, partition_key, payload_of, read_change, route_change

OLD = b'{"id":1,"body":"hi","stars":null,"price":"1.50","tags":{"a":1.0}}'
NEW = b'{"id":1,"body":"ho","stars":null,"price":null,"tags":{"a":1.0}}'


def change(op: Operation = "update", old: bytes | None = OLD, new: bytes | None = NEW) -> ChangeEvent:
    return ChangeEvent(op, b'{"id":1}', old, new, 1_700_000_000_123, Cursor(77))


@pytest.mark.parametrize(
    ("event", "payload", "made"),
    [
        (change(), "key", b'{"id":1}'),
        (change("insert", None), "full", NEW),
        (change(), "full", NEW),
        (change("delete", OLD, None), "full", OLD),
        (
            change(),
            "diff",
            b'{"key":{"id":1},"changed":{"body":{"old":"hi","new":"ho"},"price":{"old":"1.50","new":null}}}',
        ),
        (change("insert", None, b'{"id":1,"n":null}'), "diff", b'{"key":{"id":1},"changed":{"id":{"new":1},"n":{"new":null}}}'),
        (change("delete", b'{"id":1,"n":2}', None), "diff", b'{"key":{"id":1},"changed":{"id":{"old":1},"n":{"old":2}}}'),
        (change("update", NEW, NEW), "diff", b'{"key":{"id":1},"changed":{}}'),
    ],
)
def test_a_payload_is_the_key_the_row_or_what_changed(event: ChangeEvent, payload: PayloadMode, made: bytes) -> None:
    assert payload_of(event, payload) == made


@pytest.mark.parametrize("number", [b"12345678901234567890123456789012345678901234567890", b"1e400", b"0.10", b"1.0"])
def test_values_are_taken_over_as_they_stand(number: bytes) -> None:
    row = b'{"id":1,"j":%b}' % number
    assert payload_of(change("insert", None, row), "full") == row
    assert number in payload_of(change("insert", None, row), "diff")


def test_a_number_that_is_written_otherwise_has_changed() -> None:
    assert b'"old":1,"new":1.0' in payload_of(change("update", b'{"j":1}', b'{"j":1.0}'), "diff")


def test_names_of_columns_are_written_as_json() -> None:
    made = payload_of(change("insert", None, b'{"say \\"hi\\"":1}'), "diff")
    assert msgspec.json.decode(made)["changed"] == {'say "hi"': {"new": 1}}


@pytest.mark.parametrize(
    ("values", "made"),
    [
        ((42,), b"[42]"),
        ((None,), b"[null]"),
        ((True, "eu"), b'[true,"eu"]'),
        ((Decimal("1.50"), Decimal("0E-6")), b'["1.50","0.000000"]'),
        ((date(2024, 2, 29),), b'["2024-02-29"]'),
        ((datetime(2024, 2, 29, 1, 2, 3),), b'["2024-02-29T01:02:03.000000Z"]'),  # noqa: DTZ001  as DuckDB gives it
        ((datetime(2024, 2, 29, 1, 2, 3, 5, UTC),), b'["2024-02-29T01:02:03.000005Z"]'),
        ((datetime(2024, 2, 29, 1, 2, 3, 5, timezone(timedelta(hours=1))),), b'["2024-02-29T00:02:03.000005Z"]'),
        (("é😀",), '["é😀"]'.encode()),
        (('a"b\\c/\n\t\b\f\r',), rb'["a\"b\\c/\n\t\b\f\r"]'),
        (("\x01\x1f\x7f\u2028",), '["\\u0001\\u001F\x7f\u2028"]'.encode()),
    ],
)
def test_the_key_of_partition_by_is_a_json_array(values: tuple[KeyValue, ...], made: bytes) -> None:
    assert partition_key(values) == made


def test_the_record_key_chooses_the_partition_as_it_does_in_kafka() -> None:
    by_row = route_change(change(), route=RouteId(3), table="chat.messages", payload="key", partitions=16)
    assert by_row.key == b'{"id":1}'
    assert by_row.partition == partition_for_key(b'{"id":1}', 16)
    by_user = route_change(change(), route=RouteId(3), table="t", payload="key", partitions=16, key_values=(42, "eu"))
    assert by_user.key == b'[42,"eu"]'
    assert by_user.partition == partition_for_key(b'[42,"eu"]', 16)


def test_the_headers_say_where_a_message_comes_from() -> None:
    made = route_change(change("delete", OLD, None), route=RouteId(3), table="chat.messages", payload="full", partitions=1)
    assert dict(made.headers) == {
        "source_table": b"chat.messages",
        "op": b"delete",
        "timestamp": b"1700000000123",
        "payload_mode": b"full",
        "message_id": b"77-3",
        "cursor": b"77",
    }


def test_a_change_is_read_from_its_record() -> None:
    value = b'{"op":"insert","key":{"id":1},"old":null,"new":{"id":1,"body":"x"},"ts":5,"tx":"9"}'
    record = Record(b'{"id":1}', value, (), 1_700_000_000_123, Offset(4), Cursor(77))
    assert read_change(record) == change("insert", None, b'{"id":1,"body":"x"}')


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"op":"upsert","key":{},"old":null,"new":null}', b"[1]"])
def test_what_is_no_change_is_reported(value: bytes | None) -> None:
    with pytest.raises(CorruptionError, match="the change at cursor 77 can't be read"):
        read_change(Record(None, value, (), 0, Offset(4), Cursor(77)))
