"""Rows of a table are compared with those that its change topic has, and the differences become change events."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.capture import change_events, comparison
from tailrace.capture.change_events import CommitInfo, Event, RawChange, RowEventEncoder
from tailrace.capture.comparison import LoggedRows, differences
from tailrace.model.errors import CorruptionError, InvalidRequestError, LimitExceededError
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.source import ReplicaIdentity, SourceTable
from tailrace.model.table import Column, ColumnChange, ColumnType
from tailrace.wire.records import decode_batch
from tests.unit.capture.messages import Sent, delete, insert, source_table, truncate, update

INTEGER, TEXT, DATE = ColumnType("integer"), ColumnType("text"), ColumnType("date")
COLUMNS = [("id", INTEGER), ("body", TEXT), ("on", DATE)]
ORDERS = source_table(COLUMNS)
FULL = source_table(COLUMNS, identity="full")
NO_KEY = source_table(COLUMNS, (), identity="full")
THEN = CommitInfo(77, 0x16B3748, 1_767_261_600_123_456)
NOW = CommitInfo(0, 0x16B4000, 1_767_261_700_000_000)


def logged_values(table: SourceTable, *messages: bytes) -> list[bytes]:
    encoder = RowEventEncoder(table, MIB)
    return [event.value for event in encoder.events(RawChange(message, THEN) for message in messages)]


def line(cells: Sequence[Sent]) -> bytes:
    """Return a row as COPY TO writes it."""
    return b"\t".join(
        cell.replace(b"\\", b"\\\\").replace(b"\n", b"\\n") if isinstance(cell, bytes) else b"\\N" for cell in cells
    )


def found(table: SourceTable, values: Iterable[bytes], *rows: Sequence[Sent], change_bytes: int = MIB) -> list[Event]:
    with LoggedRows(RowEventEncoder(table, change_bytes)) as logged:
        logged.apply(values)
        return list(differences(logged, map(line, rows), NOW))


def changes(events: Iterable[Event]) -> list[tuple[str, Any, Any, Any]]:
    values = [json.loads(event.value) for event in events]
    return [(value["op"], value["key"], value["old"], value["new"]) for value in values]


def altered(table: SourceTable, columns: Sequence[tuple[str, ColumnType]], *history: ColumnChange) -> SourceTable:
    """Return a table after an ALTER TABLE."""
    now = msgspec.structs.replace(
        table.table, columns=tuple(Column(*column) for column in columns), history=(*table.table.history, history)
    )
    return msgspec.structs.replace(table, table=now)


def test_equal_rows_are_no_events() -> None:
    values = logged_values(ORDERS, insert(b"1", b"a", None), insert(b"2", b"\xc3\xa9", b"2026-01-31"))
    assert found(ORDERS, values, [b"2", b"\xc3\xa9", b"2026-01-31"], [b"1", b"a", None]) == []


def test_a_row_that_the_log_lacks_is_the_insert_that_a_snapshot_makes_of_it() -> None:
    events = found(ORDERS, [], [b"1", b"a", b"infinity"])
    assert events == list(RowEventEncoder(ORDERS, MIB).row_events([b"1\ta\tinfinity"], NOW))
    assert events[0].key == b'{"id":1}'
    assert events[0].at == NOW


def test_inserts_and_updates_have_the_order_of_the_rows_and_deletes_come_last() -> None:
    values = logged_values(ORDERS, *(insert(b"%d" % n, b"a", None) for n in (5, 3, 1)))
    events = found(ORDERS, values, [b"9", b"x", None], [b"3", b"b", None], [b"2", b"x", None])
    assert [(event.op, event.key) for event in events] == [
        ("insert", b'{"id":9}'),
        ("update", b'{"id":3}'),
        ("insert", b'{"id":2}'),
        ("delete", b'{"id":5}'),
        ("delete", b'{"id":1}'),
    ]


@pytest.mark.parametrize("identity", ["default", "index", "nothing"])
def test_old_rows_are_their_keys(identity: ReplicaIdentity) -> None:
    table = source_table([("a", TEXT), ("id", INTEGER), ("b", TEXT)], ["b", "id"], identity=identity)
    values = logged_values(table, insert(b"x", b"1", b"k"), insert(b"x", b"2", b"k"))
    first, second = found(table, values, [b"y", b"1", b"k"])
    assert first.value == (
        b'{"op":"update","key":{"b":"k","id":1},"old":{"id":1,"b":"k"},"new":{"a":"y","id":1,"b":"k"},'
        b'"ts":1767261700000,"tx":"23805952"}'
    )
    assert second.value == (
        b'{"op":"delete","key":{"b":"k","id":2},"old":{"id":2,"b":"k"},"new":null,"ts":1767261700000,"tx":"23805952"}'
    )


def test_updates_and_deletes_are_those_that_the_stream_makes() -> None:
    table = source_table([("on", DATE), ("n", INTEGER)], ["on"])
    values = logged_values(table, insert(b"infinity", b"1"), insert(b"-infinity", b"1"), insert(b"2026-01-31", b"1"))
    encoder = RowEventEncoder(table, MIB)
    messages = [update([b"infinity", b"2"]), delete([b"-infinity", None]), delete([b"2026-01-31", None])]
    assert found(table, values, [b"infinity", b"2"]) == list(encoder.events(RawChange(message, NOW) for message in messages))


def test_old_rows_are_whole_with_replica_identity_full() -> None:
    values = logged_values(FULL, insert(b"1", b"a", b"infinity"), insert(b"2", b"\n", None))
    encoder = RowEventEncoder(FULL, MIB)
    messages = [update([b"1", b"b", None], [b"1", b"a", b"infinity"]), delete([b"2", b"\n", None], b"O")]
    assert found(FULL, values, [b"1", b"b", None]) == list(encoder.events(RawChange(message, NOW) for message in messages))


def test_updates_deletes_and_truncates_of_the_log_count() -> None:
    values = logged_values(
        ORDERS,
        insert(b"9", b"z", None),
        truncate(),
        insert(b"1", b"a", None),
        update([b"1", b"b", None]),
        insert(b"2", b"a", None),
        delete([b"2", None, None]),
        update([b"4", b"c", None], [b"3", None, None], b"K"),
    )
    assert found(ORDERS, values, [b"1", b"b", None], [b"4", b"c", None]) == []
    assert changes(found(ORDERS, values, [b"1", b"b", None])) == [("delete", {"id": 4}, {"id": 4}, None)]


def test_unchanged_columns_are_those_of_the_row_before() -> None:
    values = logged_values(
        ORDERS, insert(b"1", b"a", None), update([b"1", ..., b"2026-01-31"]), update([b"1", ..., b"2026-02-01"])
    )
    assert found(ORDERS, values, [b"1", b"a", b"2026-02-01"]) == []
    assert [event.op for event in found(ORDERS, values, [b"1", b"b", b"2026-02-01"])] == ["update"]


def test_unchanged_columns_stay_unmapped() -> None:
    values = logged_values(ORDERS, insert(b"1", b"\xff", b"infinity"), update([b"1", ..., b"-infinity"]))
    assert found(ORDERS, values, [b"1", b"\xff", b"-infinity"]) == []
    assert [event.op for event in found(ORDERS, values, [b"1", b"\xfe", b"-infinity"])] == ["update"]


def test_unchanged_columns_of_an_update_of_the_key_are_those_of_the_deleted_row() -> None:
    values = logged_values(ORDERS, insert(b"1", b"a", None), update([b"2", ..., None], [b"1", None, None], b"K"))
    assert json.loads(values[-1])["unchanged"] == ["body"]
    assert found(ORDERS, values, [b"2", b"a", None]) == []
    with LoggedRows(RowEventEncoder(ORDERS, MIB)) as logged:
        for value in values:
            logged.apply([value])
        assert list(differences(logged, [b"2\ta\t\\N"], NOW)) == []


def test_unchanged_columns_are_found_whatever_is_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_PENDING_BYTES", 0)
    values = logged_values(
        ORDERS, insert(b"1", b"a", None), update([b"1", ..., None]), update([b"2", ..., None], [b"1", None, None], b"K")
    )
    assert found(ORDERS, values, [b"2", b"a", None]) == []


def test_a_row_with_columns_that_are_not_known_differs() -> None:
    values = logged_values(FULL, update([b"1", ..., b"2026-01-31"]), update([b"1", ..., None]))
    (event,) = found(FULL, values, [b"1", b"a", None])
    assert json.loads(event.value)["old"] == {"id": 1, "on": None, "_absent": ",body,"}
    assert json.loads(event.value)["new"] == {"id": 1, "body": "a", "on": None}
    assert "unchanged" not in json.loads(event.value)
    later = logged_values(FULL, update([b"1", b"b", ...]))
    assert found(FULL, [*values, *later], [b"1", b"b", None]) == []


def test_texts_of_unmapped_values_are_compared() -> None:
    values = logged_values(ORDERS, insert(b"1", b"a", b"infinity"))
    assert found(ORDERS, values, [b"1", b"a", b"infinity"]) == []
    (event,) = found(ORDERS, values, [b"1", b"a", b"-infinity"])
    assert json.loads(event.value)["unmapped"] == {"new": {"on": "-infinity"}}


def test_a_row_with_other_columns_differs() -> None:
    before = source_table(COLUMNS[:2], identity="full")
    now = altered(before, COLUMNS, ColumnChange("add", 2))
    values = logged_values(before, insert(b"1", b"a"), insert(b"2", b"b"))
    (event,) = found(now, [*values, *logged_values(now, update([b"2", b"b", None]))], [b"1", b"a", None], [b"2", b"b", None])
    assert json.loads(event.value) | {"ts": 0, "tx": ""} == {
        "op": "update",
        "schema_version": 2,
        "key": {"id": 1},
        "old": {"id": 1, "body": "a"},
        "new": {"id": 1, "body": "a", "on": None},
        "ts": 0,
        "tx": "",
    }


def test_a_column_of_the_same_name_as_one_that_was_dropped_is_another() -> None:
    values = logged_values(ORDERS, insert(b"1", b"a", None))
    dropped = altered(ORDERS, [COLUMNS[0], COLUMNS[2]], ColumnChange("drop", 1, "body", TEXT))
    now = altered(dropped, [COLUMNS[0], COLUMNS[2], COLUMNS[1]], ColumnChange("add", 2))
    (event,) = found(now, [*values, *logged_values(now, update([b"1", None, ...]))], [b"1", None, b"a"])
    assert event.op == "update"


def test_a_version_without_other_columns_does_not_differ() -> None:
    now = altered(ORDERS, COLUMNS, ColumnChange("retype", 0, type=ColumnType("smallint")))
    assert found(now, logged_values(ORDERS, insert(b"1", b"a", None)), [b"1", b"a", None]) == []


def test_rows_under_another_key_than_now_are_deleted_under_it() -> None:
    now = source_table(COLUMNS, ["body"], version=2)
    keyed, without = logged_values(ORDERS, insert(b"1", b"a", None)), logged_values(NO_KEY, insert(b"1", b"a", None))
    row = {"id": 1, "body": "a", "on": None}
    first, second, third = changes(found(now, [*keyed, *without], [b"1", b"a", None]))
    assert first == ("insert", {"body": "a"}, None, row)
    assert second == ("delete", {"id": 1}, {"id": 1}, None)
    assert third == ("delete", {}, row, None)


def test_rows_without_a_key_are_counted() -> None:
    a, b, c = ([b"1", body, None] for body in (b"a", b"b", b"c"))
    values = logged_values(NO_KEY, *(insert(*row) for row in (a, a, a, b, b)), update(c, b), delete(a, b"O"))
    assert found(NO_KEY, values, a, b, c, a) == []
    assert changes(found(NO_KEY, values, a, b, b, b)) == [
        ("insert", {}, None, {"id": 1, "body": "b", "on": None}),
        ("insert", {}, None, {"id": 1, "body": "b", "on": None}),
        ("delete", {}, {"id": 1, "body": "a", "on": None}, None),
        ("delete", {}, {"id": 1, "body": "c", "on": None}, None),
    ]
    assert [event.op for event in found(NO_KEY, values)] == ["delete"] * 4


def test_old_rows_without_a_key_that_the_log_does_not_have_are_ignored() -> None:
    table = source_table(COLUMNS, (), identity="nothing")
    a, b = [b"1", b"a", None], [b"1", b"b", b"infinity"]
    values = logged_values(table, delete(a, b"O"), delete([None] * 3), insert(*a), update(b), update([b"1", ..., None]))
    assert [json.loads(value)["old"] for value in values[1:4]] == [{}, None, {}]
    assert changes(found(table, values, a, b, a)) == [
        ("insert", {}, None, {"id": 1, "body": "a", "on": None}),
        ("delete", {}, {"id": 1, "on": None, "_absent": ",body,"}, None),
    ]


def test_rows_that_were_removed_too_often_are_there_when_they_are_inserted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    row = [b"1", b"a", None]
    inserted, deleted = logged_values(NO_KEY, insert(*row), delete(row, b"O"))
    with LoggedRows(RowEventEncoder(NO_KEY, MIB)) as logged:
        monkeypatch.setattr(comparison, "_PENDING_BYTES", 0)
        logged.apply([inserted, deleted])
        monkeypatch.setattr(comparison, "_PENDING_BYTES", MIB)
        logged.apply([deleted, inserted])
        assert list(differences(logged, [line(row)], NOW)) == []


def test_events_that_are_no_changes_are_left_out() -> None:
    value = logged_values(ORDERS, insert(b"1", b"a", None))[0].replace(b'"insert"', b'"read"')
    assert [event.op for event in found(ORDERS, [value], [b"1", b"a", None])] == ["insert"]


def test_an_event_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(CorruptionError, match=r"a change of table 'shop.public.orders' can't be read.*\{\"op\":1"):
        found(ORDERS, [b'{"op":1}'])


def test_an_event_over_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceededError, match=r'\{"id":1\} of table .* takes \d+ bytes.*change_bytes'):
        found(ORDERS, [], [b"1", b"x" * 200, None], change_bytes=200)


def test_rows_of_a_snapshot_over_the_limit_are_refused() -> None:
    with pytest.raises(LimitExceededError, match=r'\{"id":2\} of table .* takes 3\d\d bytes.*change_bytes'):
        RowEventEncoder(ORDERS, 200).encode_rows([b"1\ta\t\\N", b"2\t%b\t\\N" % (b"x" * 200)], NOW, MIB)


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), LoggedRows(RowEventEncoder(ORDERS, MIB), tmp_path) as logged:
        logged.apply(logged_values(ORDERS, *(insert(b"%d" % n, b"x" * 1000, None) for n in range(1000))))
        assert next(differences(logged, [b"-1\ta\t\\N"], NOW)).op == "insert"
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_batches_come_as_they_fill() -> None:
    taken = 0

    def events() -> Iterable[Event]:
        nonlocal taken
        for event in RowEventEncoder(ORDERS, MIB).row_events((b"%d\ta\t\\N" % n for n in range(1000)), NOW):
            taken += 1
            yield event

    batches = iter(RowEventEncoder(ORDERS, MIB).encode_events(events(), 2 * KIB, is_snapshot=True))
    assert next(batches).records == taken - 1 < 20
    rest = list(batches)
    assert len(rest[-1].batch) <= 2 * KIB
    last = decode_batch(rest[-1].batch, Limits())[-1]
    assert (last.key, dict(last.headers)["snapshot"]) == (b'{"id":999}', b"true")


cells = st.none() | st.sampled_from([b"a", b"b", b"infinity", b"\xff", b"%b", b"\\", b"2026-01-31"])
numbers = st.sampled_from([b"1", b"2", b"3", b"4"])
WIDE = [("id", INTEGER), ("%s", TEXT), ("on", DATE)]


@given(st.lists(st.tuples(numbers, cells, cells), max_size=8), st.sampled_from([(), ("id",), ("on", "id")]))
def test_rows_of_snapshots_are_the_inserts_of_the_stream(rows: list[tuple[Sent, ...]], key: Sequence[str]) -> None:
    """The fast path for rows of COPY and the general one for changes make the same events."""
    encoder = RowEventEncoder(source_table(WIDE, key, version=2), MIB)
    lines = [line(row) for row in rows]

    def outcome(events: Iterable[Event]) -> list[Event] | str:
        try:
            return list(events)
        except InvalidRequestError as error:
            return str(error)

    general = outcome(encoder.events(RawChange(insert(*row), NOW) for row in rows))
    assert outcome(encoder.row_events(lines, NOW)) == general


class _Model:
    """A table of PostgreSQL, and the messages of what happens to it."""

    def __init__(self, *, is_keyed: bool, is_full: bool) -> None:
        self.is_keyed = is_keyed
        self.is_full = is_full
        self.rows: list[list[Sent]] = []
        self.messages: list[bytes] = []

    def put(self, row: list[Sent]) -> None:
        if not self.is_keyed or all(there[0] != row[0] for there in self.rows):
            self.rows.append(row)
            self.messages.append(insert(*row))

    def change(self, which: int, row: list[Sent]) -> None:
        if not self.rows:
            return
        place = which % len(self.rows)
        before = self.rows[place]
        if self.is_keyed and row[0] != before[0] and any(there[0] == row[0] for there in self.rows):
            return
        self.rows[place] = row
        # Values that stay the same are stored apart.
        sent: list[Sent] = [row[0], *(... if cell == there else cell for cell, there in zip(row[1:], before[1:], strict=True))]
        if self.is_full:
            self.messages.append(update(sent, before))
        elif row[0] != before[0]:
            self.messages.append(update(sent, [before[0], None, None], b"K"))
        else:
            self.messages.append(update(sent))

    def remove(self, which: int) -> None:
        if self.rows:
            row = self.rows.pop(which % len(self.rows))
            self.messages.append(delete(row, b"O") if self.is_full else delete([row[0], None, None]))

    def empty(self) -> None:
        self.rows.clear()
        self.messages.append(truncate())


row_lists = st.tuples(numbers, cells, cells).map(list)
steps = st.one_of(
    st.tuples(st.just("put"), row_lists),
    st.tuples(st.just("put"), row_lists),
    st.tuples(st.just("change"), st.integers(0, 9), row_lists),
    st.tuples(st.just("change"), st.integers(0, 9), row_lists),
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.just(("empty",)),
)


def replayed(values: Iterable[bytes]) -> Counter[tuple[bytes, bytes, bytes]]:
    """Apply events as a consumer that keeps a copy of the rows would, and return them."""
    keyed: dict[bytes, tuple[bytes, bytes]] = {}
    rows: Counter[tuple[bytes, bytes]] = Counter()
    for value in values:
        event = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        op, key = bytes(event["op"]), bytes(event["key"])
        unmapped = msgspec.json.decode(event.get("unmapped", b"{}"), type=dict[str, msgspec.Raw])
        old, new = ((bytes(event[member]), bytes(unmapped.get(member, b""))) for member in ("old", "new"))
        if op == b'"truncate"':
            keyed.clear()
            rows.clear()
        elif key != b"{}":
            keyed.pop(key, None)
            if op != b'"delete"':
                keyed[key] = new
        else:
            if op != b'"insert"':
                assert rows[old] > 0
                rows[old] -= 1
            if op != b'"delete"':
                rows[new] += 1
    return Counter({(b"{}", *row): count for row, count in rows.items() if count}) + Counter(
        {(key, *row): 1 for key, row in keyed.items()}
    )


@settings(max_examples=300)
@given(
    st.lists(steps, max_size=12),
    st.lists(row_lists, max_size=6),
    st.data(),
    st.sampled_from([(True, True), (True, False), (False, True)]),
    st.booleans(),
)
def test_the_differences_make_the_rows_of_the_log_those_of_the_table(
    history: list[tuple[Any, ...]], others: list[list[Sent]], data: st.DataObject, kind: tuple[bool, bool], flushes: bool
) -> None:
    is_keyed, is_full = kind
    model = _Model(is_keyed=is_keyed, is_full=is_full)
    for name, *arguments in history:
        getattr(model, name)(*arguments)
    table = source_table(WIDE, ["id"] if is_keyed else [], identity="full" if is_full else "default")
    values = logged_values(table, *model.messages)
    target = data.draw(st.lists(st.sampled_from(model.rows), max_size=6) if model.rows else st.just([])) + others
    if is_keyed:
        target = list({row[0]: row for row in target}.values())
    lines, same = [line(row) for row in target], [line(row) for row in model.rows]
    encoder = RowEventEncoder(table, MIB)

    def compared(values: list[bytes], lines: list[bytes]) -> list[bytes]:
        with pytest.MonkeyPatch.context() as patch, LoggedRows(encoder) as logged:
            patch.setattr(comparison, "_PENDING_BYTES", 0 if flushes else MIB)
            patch.setattr(change_events, "_CHUNK_BYTES", 10 if flushes else MIB)
            logged.apply(values)
            return [event.value for event in differences(logged, lines, NOW)]

    assert compared(values, same) == []
    added = compared(values, lines)
    assert compared([*values, *added], lines) == []
    snapshot = [event.value for event in encoder.row_events(lines, NOW)]
    if not any(b'"unchanged"' in value for value in values):
        assert replayed([*values, *added]) == replayed(snapshot)
    both = Counter(lines) & Counter(same)
    assert len(added) <= len(lines) + len(same) - both.total() * 2
