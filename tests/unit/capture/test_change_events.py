"""Changes of rows become change events. `tests/integration/capture` takes the changes from PostgreSQL."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.capture.change_events import ChangeEventBatch, CommitInfo, RawChange, RowEventEncoder, read_copy_line
from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.record import Record
from tailrace.model.table import ColumnType
from tailrace.wire.batch import check_batch
from tailrace.wire.fast_change_rows import load_row_images
from tailrace.wire.records import decode_batch
from tailrace.wire.routing import read_change
from tests.unit.capture.messages import delete, insert, source_table, truncate, update

INTEGER, TEXT, DATE = ColumnType("integer"), ColumnType("text"), ColumnType("date")
ORDERS = source_table([("id", INTEGER), ("body", TEXT), ("on", DATE)])
AT = CommitInfo(77, 0x16B3748, 1_767_261_600_123_456)


def records(batches: list[ChangeEventBatch]) -> list[Record]:
    for batch in batches:
        assert check_batch(batch.batch).records == batch.records
    return [record for batch in batches for record in decode_batch(batch.batch, Limits())]


def encoded(*messages: bytes, table: Any = ORDERS) -> list[Record]:
    return records(RowEventEncoder(table, MIB).encode([RawChange(message, AT) for message in messages], MIB))


def test_an_event_is_exactly_these_bytes() -> None:
    (record,) = encoded(
        update([b"1", ..., b"infinity"]), table=source_table([("id", INTEGER), ("body", TEXT), ("on", DATE)], version=2)
    )
    assert record.value == (
        b'{"op":"update","schema_version":2,"unchanged":["body"],"unmapped":{"new":{"on":"infinity"}},"key":{"id":1},'
        b'"old":{"id":1},"new":{"id":1,"_absent":",body,on,"},"ts":1767261600123,"tx":"23803720"}'
    )
    assert record.key == b'{"id":1}'
    assert record.timestamp == 1767261600123
    assert record.headers == [
        ("source_table", b"shop.public.orders"),
        ("op", b"update"),
        ("tx", b"23803720"),
        ("xid", b"77"),
        ("lsn", b"0/16B3748"),
        ("commit_time", b"2026-01-01T10:00:00.123456Z"),
        ("schema_version", b"2"),
    ]


def test_version_1_is_not_written() -> None:
    (record,) = encoded(insert(b"1", b"a", None))
    assert record.value == (
        b'{"op":"insert","key":{"id":1},"old":null,"new":{"id":1,"body":"a","on":null},"ts":1767261600123,"tx":"23803720"}'
    )
    assert "schema_version" not in dict(record.headers)


def test_a_truncate_has_no_key() -> None:
    (record,) = encoded(truncate())
    assert record.value == b'{"op":"truncate","key":null,"old":null,"new":null,"ts":1767261600123,"tx":"23803720"}'
    assert record.key is None


def test_values_that_a_key_column_cannot_hold_are_texts_in_the_key() -> None:
    table = source_table([("on", DATE), ("n", INTEGER)], ["on"])
    first, second = encoded(insert(b"infinity", b"1"), update([b"infinity", b"2"]), table=table)
    assert first.key == second.key == b'{"on":"infinity"}'
    event = json.loads(second.value or b"")
    assert event["unmapped"] == {"old": {"on": "infinity"}, "new": {"on": "infinity"}}
    assert (event["old"], event["new"]) == ({"_absent": ",on,"}, {"n": 2, "_absent": ",on,"})


def test_an_update_of_a_key_to_another_text_is_two_events() -> None:
    found = encoded(update([b"2", b"a", None], [b"1", None, None], b"K"))
    assert [(record.key, read_change(record).op) for record in found] == [(b'{"id":1}', "delete"), (b'{"id":2}', "insert")]


def test_a_key_of_several_columns_has_their_order_in_the_key() -> None:
    (record,) = encoded(insert(b"1", b"a", None), table=source_table([("id", INTEGER), ("b", TEXT), ("c", TEXT)], ["b", "id"]))
    assert record.key == b'{"b":"a","id":1}'


def test_a_delete_without_its_key_says_what_to_do() -> None:
    with pytest.raises(InvalidRequestError, match=r"'id' of the primary key.*ALTER TABLE public.orders REPLICA IDENTITY"):
        encoded(delete([None, b"a", None]))


def test_a_change_with_other_columns_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="has 2 columns instead of 3"):
        encoded(insert(b"1", b"a"))


def test_a_message_that_is_no_change_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="StreamStop is not a change"):
        encoded(b"E")


def test_an_event_over_the_limit_is_refused_with_its_table_key_and_size() -> None:
    encoder = RowEventEncoder(ORDERS, 200)
    (batch,) = encoder.encode([RawChange(insert(b"1", b"x" * 85, None), AT)], MIB)
    size = len(decode_batch(batch.batch, Limits())[0].value or b"")
    fits = insert(b"1", b"x" * (85 + 200 - size), None)
    encoder.encode([RawChange(fits, AT)], MIB)
    with pytest.raises(LimitExceededError, match=r'\{"id":1\} of table .shop.public.orders. takes 201 bytes.*change_bytes'):
        encoder.encode([RawChange(insert(b"1", b"x" * (86 + 200 - size), None), AT)], MIB)


def test_batches_are_no_larger_than_asked_for_unless_one_event_is() -> None:
    changes = [
        RawChange(insert(b"%d" % n, b"x" * (3000 if n == 5 else n), None), AT._replace(commit_time_us=n * 10**6))
        for n in range(40)
    ]
    batches = RowEventEncoder(ORDERS, MIB).encode(changes, 2 * KIB)
    assert len(batches) > 5
    assert [batch.records for batch in batches if len(batch.batch) > 2 * KIB] == [1]
    found = records(batches)
    assert [record.key for record in found] == [b'{"id":%d}' % n for n in range(40)]
    assert [record.timestamp for record in found] == [n * 1000 for n in range(40)]


def test_times_of_commits_may_go_back() -> None:
    changes = [RawChange(insert(b"1", None, None), AT._replace(commit_time_us=us)) for us in (5_000, -1, 9_000, 0)]
    batches = RowEventEncoder(ORDERS, MIB).encode(changes, MIB)
    assert [record.timestamp for record in records(batches)] == [5, -1, 9, 0]
    assert check_batch(batches[0].batch).max_timestamp == 9


def test_nothing_is_no_batch() -> None:
    assert RowEventEncoder(ORDERS, MIB).encode([], MIB) == []


def test_rows_of_a_snapshot_say_so() -> None:
    (record,) = records(RowEventEncoder(ORDERS, MIB).encode_rows([b"1\ta\\tb\\\\N\t\\N"], AT, MIB))
    assert json.loads(record.value or b"")["new"] == {"id": 1, "body": "a\tb\\N", "on": None}
    headers = dict(record.headers)
    assert headers["snapshot"] == b"true"
    assert headers["op"] == b"insert"
    assert "xid" not in headers


_ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}
cells = st.none() | st.binary(max_size=8) | st.lists(st.sampled_from([*_ESCAPES, 78]), max_size=6).map(bytes)


@given(st.lists(cells, min_size=1, max_size=4))
def test_lines_of_copy_are_read_as_they_were_written(row: list[bytes | None]) -> None:
    line = b"\t".join(b"\\N" if cell is None else b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in cell) for cell in row)
    assert read_copy_line(line) == row


sent = st.none() | st.just(...) | st.sampled_from([b"a", b'},"new":{"', b"\\", b"\n", "é".encode()])


@given(st.lists(st.tuples(sent, sent), min_size=1, max_size=5))
def test_readers_of_change_events_find_both_rows(rows: list[tuple[Any, Any]]) -> None:
    table = source_table([("id", INTEGER), ("a", TEXT), ('"', TEXT)], version=3)
    found = encoded(*(update([b"1", *row], [b"1", b"x", None]) for row in rows), table=table)
    images = load_row_images()(pa.array([record.value for record in found], pa.binary()))
    for record, old, new in zip(found, images.old.to_pylist(), images.new.to_pylist(), strict=True):
        change, event = read_change(record), json.loads(record.value or b"")
        assert (change.old, change.new) == (old, new)
        assert (json.loads(old), json.loads(new)) == (event["old"], event["new"])
