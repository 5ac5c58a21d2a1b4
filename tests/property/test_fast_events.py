"""Machine code makes the same batches of changes as the general path, to the byte, or leaves them to it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.capture.change_events import (
    ChangeEventBatch,
    CommitInfo,
    Event,
    RawChange,
    RawChanges,
    RowEventEncoder,
)
from tailrace.capture.fast_events import LEAST_CHANGES, await_kernel
from tailrace.model.errors import TailraceError
from tailrace.model.limits import KIB, MIB
from tailrace.model.source import SourceTable
from tailrace.model.table import ColumnType
from tests.unit.capture.messages import Sent, delete, insert, source_table, truncate, update

AT = CommitInfo(77, 0x16B3748, 1_767_261_600_123_456)
SNAPSHOT = CommitInfo(0, 0x16B3748, 1_767_261_600_123_456)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    await_kernel()


def matching(pattern: str) -> st.SearchStrategy[bytes]:
    return st.from_regex(pattern.encode(), fullmatch=True)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
json_texts = st.builds(
    lambda value, is_ascii, indent: json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode(errors="surrogatepass"),
    json_values,
    st.booleans(),
    st.sampled_from([None, 0, 2, "\t"]),
)
DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = r"[0-2][0-9]:[0-9]{2}:[0-9]{2}(\.[0-9]{1,7})?"
TEXTS = st.text(max_size=12).map(str.encode) | st.binary(max_size=8) | st.sampled_from([b'"', b"\\", b"\x7f", b"\xed\xa0\x80"])
INTEGER = ColumnType("integer")
COLUMNS: dict[str, tuple[ColumnType, st.SearchStrategy[bytes]]] = {
    "smallint": (ColumnType("smallint"), matching("-?[0-9]{1,5}")),
    "integer": (INTEGER, matching("-?[0-9]{1,10}")),
    "bigint": (ColumnType("bigint"), matching("-?[0-9]{1,19}")),
    "boolean": (ColumnType("boolean"), st.sampled_from([b"t", b"f"])),
    "text": (ColumnType("text"), TEXTS),
    "char": (ColumnType("char", length=9), TEXTS),
    "numeric": (ColumnType("decimal"), matching(r"-?[0-9]{1,40}(\.[0-9]{1,9})?") | st.sampled_from([b"NaN", b"-Infinity"])),
    "decimal": (ColumnType("decimal", precision=9, scale=2), matching(r"-?[0-9]{1,7}(\.[0-9]{2})?") | st.just(b"NaN")),
    "real": (ColumnType("real"), matching(r"-?[0-9]{1,3}(\.[0-9]{1,3})?(e[+-]?[0-9]{2})?") | st.just(b"Infinity")),
    "double": (ColumnType("double"), st.floats().map(lambda number: repr(number).encode())),
    "date": (ColumnType("date"), matching(DAY) | st.sampled_from([b"infinity", b"0044-03-15 BC", b"10000-01-01"])),
    "time": (ColumnType("time"), matching(TIME) | st.just(b"24:00:00")),
    "timestamp": (ColumnType("timestamp"), matching(rf"{DAY} {TIME}(\+00)?") | st.sampled_from([b"-infinity", b"infinity"])),
    "uuid": (ColumnType("uuid"), st.uuids().map(lambda number: str(number).encode())),
    "json": (ColumnType("json"), json_texts),
    "bytes": (ColumnType("bytes"), st.binary(max_size=9).map(lambda data: b"\\x" + data.hex().encode())),
}
"""Types with texts that PostgreSQL has for them, and some that have no JSON."""
wrong_texts = st.sampled_from(
    [b"", b"-", b"1.", b".5", b"1e", b"1e+", b"x", b"tt", b"2026-01-31x", b"2026-01-31 13:45", b"2026-01-31 13:45:00+02",
     b"2026-01-31 13:45:00.+00", b"\\x0", b"\\xAB", b"\\xg0", b"abc", b"1\n", b"2026-01-31\n"]
)  # fmt: skip


class OnlyFast(RowEventEncoder):
    """Fails if the general path is asked for a change."""

    def events(self, changes: Iterable[RawChange]) -> Iterator[Event]:
        raise AssertionError(f"the general path was asked for {list(changes)}")


@st.composite
def captured_tables(draw: st.DrawFn) -> tuple[SourceTable, list[st.SearchStrategy[bytes]]]:
    """Draw a table, and the texts that its columns may have."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5))
    names = [f'{place}%ü"' for place in range(len(kinds))]
    key = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    columns = [(name, COLUMNS[kind][0]) for name, kind in zip(names, kinds, strict=True)]
    # PostgreSQL never sends JSON that is none.
    texts = [COLUMNS[kind][1] if kind == "json" else COLUMNS[kind][1] | wrong_texts for kind in kinds]
    return source_table(columns, key, version=draw(st.integers(1, 2))), texts


@st.composite
def row_messages(draw: st.DrawFn, texts: Sequence[st.SearchStrategy[bytes]]) -> bytes:
    """Draw a message, most of them with all values."""
    rare: st.SearchStrategy[Sent] = st.none() if draw(st.integers(0, 3)) else st.sampled_from([None, ...])

    def row() -> list[Sent]:
        return [draw(rare) if draw(st.integers(0, 9)) == 0 else draw(text) for text in texts]

    new = row()
    old: list[Sent] = row()
    if draw(st.booleans()):
        old = [after if draw(st.booleans()) else before for before, after in zip(old, new, strict=True)]
    kind = draw(st.sampled_from([b"K", b"O"]))
    if kind == b"K":
        old = [cell if draw(st.booleans()) else None for cell in old]
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2 | 3:
            return insert(*new)
        case 4 | 5:
            return update(new)
        case 6:
            return update(new, old, kind)
        case 7:
            return update(new, new, kind)
        case 8:
            return delete(old, kind)
    return draw(st.sampled_from([truncate(), insert(*new, b"1"), delete(new), delete(new, b"O")]))


@st.composite
def table_changes(draw: st.DrawFn, texts: Sequence[st.SearchStrategy[bytes]]) -> RawChanges:
    """Draw enough changes for the fast path, of commits whose times may go back."""
    found = RawChanges(AT)
    found.messages += draw(st.lists(row_messages(texts), max_size=5))
    for _ in range(draw(st.integers(0, 2))):
        time = AT.commit_time_us + draw(st.integers(-(10**10), 10**10))
        part = RawChanges(CommitInfo(draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**63)), time))
        part.messages += draw(st.lists(row_messages(texts), max_size=5))
        found.extend(part)
    found.messages += [truncate()] * (LEAST_CHANGES - len(found))
    return found


def outcome(batches: Callable[[], list[ChangeEventBatch]]) -> list[ChangeEventBatch] | str:
    try:
        return batches()
    except (TailraceError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def outcomes(
    table: SourceTable, changes: RawChanges, most_bytes: int, change_bytes: int = MIB
) -> tuple[list[ChangeEventBatch] | str, list[ChangeEventBatch] | str]:
    encoder = RowEventEncoder(table, change_bytes)
    fast = outcome(lambda: encoder.encode(changes, most_bytes))
    return fast, outcome(lambda: encoder.encode(list(changes), most_bytes))


@settings(max_examples=200)
@given(captured_tables(), st.data(), st.integers(200, 3 * KIB) | st.just(MIB), st.sampled_from([MIB, MIB, 250]))
def test_changes_are_the_same_batches(
    of: tuple[SourceTable, list[st.SearchStrategy[bytes]]], data: st.DataObject, most_bytes: int, change_bytes: int
) -> None:
    table, texts = of
    fast, general = outcomes(table, data.draw(table_changes(texts)), most_bytes, change_bytes)
    assert fast == general


@settings(max_examples=100)
@given(captured_tables(), st.data())
def test_damaged_messages_are_refused_alike(
    of: tuple[SourceTable, list[st.SearchStrategy[bytes]]], data: st.DataObject
) -> None:
    table, texts = of
    changes = data.draw(table_changes(texts))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changes) - 1))
        message = bytearray(changes.messages[place])
        at = data.draw(st.integers(1, len(message) - 1))
        message[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        # JSON that is none is what PostgreSQL never sends.
        if not any(column.type.kind == "json" for column in table.table.columns):
            changes.messages[place] = bytes(message)
    fast, general = outcomes(table, changes, MIB)
    assert fast == general


@settings(max_examples=200)
@given(captured_tables(), st.data(), st.integers(200, 3 * KIB) | st.just(MIB))
def test_rows_of_snapshots_are_the_same_batches(
    of: tuple[SourceTable, list[st.SearchStrategy[bytes]]], data: st.DataObject, most_bytes: int
) -> None:
    table, texts = of
    rows = data.draw(st.lists(st.tuples(*(st.none() | text for text in texts)), min_size=LEAST_CHANGES, max_size=12))
    lines = [copy_line(row) for row in rows]
    if data.draw(st.booleans()) and not any(column.type.kind == "json" for column in table.table.columns):
        lines.append(data.draw(st.lists(st.sampled_from(b"\\\\\tNnbx\xc3\xa9"), max_size=12).map(bytes)))
    encoder = RowEventEncoder(table, MIB)
    fast = outcome(lambda: encoder.encode_rows(lines, SNAPSHOT, most_bytes))

    def general() -> list[ChangeEventBatch]:
        return list(encoder.encode_events(encoder.row_events(lines, SNAPSHOT), most_bytes, is_snapshot=True))

    expected = outcome(general)
    if isinstance(expected, str):
        # Which of several faults is named depends on the order in which they are found.
        assert isinstance(fast, str)
    else:
        assert fast == expected


def copy_line(cells: Sequence[bytes | None]) -> bytes:
    """Return a row as COPY TO writes it."""
    escapes = {b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\v": b"\\v"}
    fields = []
    for cell in cells:
        if cell is None:
            fields.append(b"\\N")
        else:
            fields.append(b"".join(escapes.get(bytes([byte]), bytes([byte])) for byte in cell))
    return b"\t".join(fields)


PLAIN = {
    "smallint": b"-7",
    "integer": b"42",
    "bigint": b"9223372036854775807",
    "boolean": b"f",
    "text": 'a "b"\n\x01 ü€😀'.encode(),
    "char": b"abc      ",
    "numeric": b"-0.10",
    "decimal": b"12.30",
    "real": b"1e+20",
    "double": b"5",
    "date": b"2026-01-31",
    "time": b"23:59:59.5",
    "timestamp": b"2026-01-31 13:45:00.123+00",
    "uuid": b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "json": b'{"a": [1, "b \\n", null]}',
    "bytes": b"\\x00ff10",
}


@pytest.mark.parametrize("kind", sorted(COLUMNS))
def test_every_type_is_encoded_without_the_general_path(kind: str) -> None:
    table = source_table([("id", INTEGER), ("a", COLUMNS[kind][0])])
    row, null = [b"1", PLAIN[kind]], [b"1", None]
    changes = RawChanges(AT)
    changes.messages += [insert(*row), update(row), update(null, row), update(row, null), delete(row, b"O"), delete(null)]
    general = RowEventEncoder(table, MIB).encode(list(changes), MIB)
    assert OnlyFast(table, MIB).encode(changes, MIB) == general


def test_only_the_changes_that_need_it_go_the_general_way() -> None:
    class Counting(RowEventEncoder):
        asked = 0

        def events(self, changes: Iterable[RawChange]) -> Iterator[Event]:
            for change in changes:
                self.asked += 1
                yield from super().events((change,))

    table = source_table([("id", INTEGER), ("a", ColumnType("date"))])
    changes = RawChanges(AT)
    changes.messages += [insert(b"%d" % number, b"2026-01-31") for number in range(50)]
    changes.messages[20] = insert(b"20", b"infinity")
    changes.messages[30] = update([b"31", b"2026-01-31"], [b"30", None], b"K")
    changes.messages[40] = truncate()
    encoder = Counting(table, MIB)
    (batch,) = encoder.encode(changes, MIB)
    assert encoder.asked == 3
    assert batch.records == 51
    assert [batch] == encoder.encode(list(changes), MIB)


def test_batches_are_cut_at_the_same_records() -> None:
    table = source_table([("id", INTEGER), ("a", ColumnType("text"))])
    changes = RawChanges(AT)
    for number in range(3_000):
        changes.messages.append(insert(b"%d" % number, b"x" * (number * 7 % 900)))
    # More than a batch, and more than the loop has room for.
    changes.messages[1_000] = insert(b"0", b'"' * (40 * KIB))
    changes.messages[2_000] = insert(b"0", b"\1" * (70 * KIB))
    fast, general = outcomes(table, changes, 32 * KIB)
    assert fast == general
    assert len(fast) > 30


def test_a_line_is_the_same_when_it_is_read_again_for_the_next_batch() -> None:
    """A line whose record did not fit was read without its escapes the second time."""
    table = source_table([("id", INTEGER), ("a", ColumnType("text")), ("b", ColumnType("text"))])
    lines = [copy_line((b"%d" % number, None, b"a\\\tb\nN\\N")) for number in range(100)]
    encoder = RowEventEncoder(table, MIB)
    general = list(encoder.encode_events(encoder.row_events(lines, SNAPSHOT), KIB, is_snapshot=True))
    assert encoder.encode_rows(lines, SNAPSHOT, KIB) == general


def test_many_small_records_are_cut_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.capture.change_events.BATCH_RECORDS", 100)
    changes = RawChanges(AT)
    changes.messages += [insert(b"%d" % number) for number in range(250)]
    fast, general = outcomes(source_table([("id", INTEGER)]), changes, MIB)
    assert fast == general
    assert [batch.records for batch in RowEventEncoder(source_table([("id", INTEGER)]), MIB).encode(changes, MIB)] == [
        100,
        100,
        50,
    ]


def test_the_general_path_serves_until_the_code_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = RawChanges(AT)
    changes.messages += [insert(b"%d" % number) for number in range(20)]
    table = source_table([("id", INTEGER)])
    fast = OnlyFast(table, MIB).encode(changes, MIB)
    monkeypatch.setattr("tailrace.capture.change_events.ready_kernel", lambda: None)
    assert RowEventEncoder(table, MIB).encode(changes, MIB) == fast
    with pytest.raises(AssertionError, match="the general path was asked"):
        OnlyFast(table, MIB).encode(changes, MIB)


def test_tables_with_other_types_go_the_general_way() -> None:
    table = source_table([("id", INTEGER), ("a", ColumnType("list", element=INTEGER)), ("b", ColumnType("interval"))])
    changes = RawChanges(AT)
    changes.messages += [insert(b"%d" % number, b"{1,2}", b"1 day") for number in range(20)]
    fast, general = outcomes(table, changes, MIB)
    assert fast == general
