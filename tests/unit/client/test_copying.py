"""Files of COPY, read in chunks and written, without a server."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tailrace.client.copying.csv_reader import CsvFormat
from tailrace.client.copying.csv_writer import CsvWriter
from tailrace.client.copying.sources import CopyChunk, CopySource, open_source
from tailrace.client.copying.targets import CopyTarget
from tailrace.model.errors import ConfigurationError

KNOWN = ["id", "note"]


def _open(source: Any, known: list[str] | None = None, **options: Any) -> CopySource:
    settings = {"columns": None, "format": None, "header": True, "csv": CsvFormat(), "start_line": 1, **options}
    return open_source(source, known or KNOWN, **settings)


def _chunks(source: Any, **options: Any) -> list[CopyChunk]:
    opened = _open(source, **options)
    try:
        return list(opened.chunks())
    finally:
        opened.close()


def _rows(chunks: list[CopyChunk]) -> list[tuple[Any, ...]]:
    return [
        (line, *values)
        for chunk in chunks
        for line, *values in zip(chunk.lines, *(column.to_pylist() for column in chunk.columns), strict=True)
    ]


def _csv(text: str, **options: Any) -> list[CopyChunk]:
    return _chunks(io.BytesIO(text.encode()), format="csv", **options)


def test_rows_know_the_lines_on_which_they_begin() -> None:
    assert _rows(_csv('id,note\n1,"two\nlines"\n2,b\n')) == [(2, "1", "two\nlines"), (4, "2", "b")]


def test_a_header_says_which_columns_follow() -> None:
    (chunk,) = _csv("note,id\nx,1\n")
    assert list(chunk.names) == ["note", "id"]


def test_a_byte_order_mark_is_skipped() -> None:
    (chunk,) = _csv("\ufeffid,note\n1,x\n")
    assert list(chunk.names) == KNOWN


def test_without_a_header_columns_come_in_their_order() -> None:
    assert _rows(_csv("1,x\n", header=False)) == [(1, "1", "x")]
    (chunk,) = _csv("x\n", header=False, columns=["note"])
    assert list(chunk.names) == ["note"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("id,nope\n", {}, "the table has no column 'nope'; it has id, note"),
        ("id,ID\n", {}, "named twice"),
        ("", {}, "no columns are named"),
        ("note,id\n", {"header": "match"}, 'column name mismatch in header line field 1: got "note", expected "id"'),
        ("id\n", {"header": "match"}, "wrong number of fields in header line: got 1, expected 2"),
        ("id,note\n1,x\n", {"start_line": 9}, "ends before line 9"),
        ("id,note\n", {"start_line": 0}, "lines are counted from 1"),
        ("1\n", {"columns": ["nope"]}, "no column 'nope'"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_before_anything_is_sent(text: str, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _csv(text, **options)


@pytest.mark.parametrize(
    "wrong", [{"delimiter": "ab"}, {"delimiter": "\n"}, {"quote": ","}, {"null": "a,b"}, {"delimiter": "é"}]
)
def test_impossible_formats_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        CsvFormat(**wrong)


def test_a_copy_goes_on_at_a_line() -> None:
    text = "id,note\n" + "".join(f"{number},x\n" for number in range(2, 100))
    assert [row[:2] for row in _rows(_csv(text, start_line=98))] == [(98, "98"), (99, "99")]
    assert _rows(_csv('1,"a\nb"\n2,c\n', header=False, start_line=3)) == [(3, "2", "c")]


def test_wrong_rows_are_named_and_the_others_read() -> None:
    (chunk,) = _csv("id,note\n1,x\n2\n3,y,z\n4,w\n")
    assert _rows([chunk]) == [(2, "1", "x"), (5, "4", "w")]
    assert [(row.line, row.reason, row.raw) for row in chunk.invalid] == [
        (3, 'missing data for column "note"', b"2\n"),
        (4, "extra data after last expected column", b"3,y,z\n"),
    ]


def test_large_files_come_in_bounded_chunks_that_lack_nothing(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("id,note\n" + "".join(f'{number},"note {number}"\n' for number in range(100_000)))
    chunks = _chunks(file)
    assert max(len(chunk.lines) for chunk in chunks) <= 20_000
    assert _rows(chunks) == [(number + 2, str(number), f"note {number}") for number in range(100_000)]
    assert [chunk.first_line for chunk in chunks[1:]] == [chunk.next_line for chunk in chunks[:-1]]
    assert chunks[-1].read_bytes == file.stat().st_size
    last = chunks[-1]
    assert last.raw[len(last.lines) - 1] == b'99999,"note 99999"\n'


def test_a_chunk_ends_before_a_line() -> None:
    (chunk,) = _csv('id,note\n1,"a\nb"\n2\n4,c\n5,d\n')
    before = chunk.before(6)
    assert _rows([before]) == [(2, "1", "a\nb"), (5, "4", "c")]
    assert [row.line for row in before.invalid] == [4]
    assert (before.first_line, before.next_line) == (2, 6)


def test_a_quote_that_never_ends_does_not_fill_the_memory() -> None:
    endless = io.BytesIO(b'id,note\n1,"' + b"x\n" * (10 * 1024 * 1024))
    with pytest.raises(ConfigurationError, match="is a quote missing"):
        _chunks(endless, format="csv")


def test_parquet_and_arrow_are_read_by_name(tmp_path: Path) -> None:
    table = pa.table({"note": ["x", "y", "z"], "id": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "in.parquet")
    for source in (tmp_path / "in.parquet", table, pa.RecordBatchReader.from_batches(table.schema, table.to_batches())):
        (chunk,) = _chunks(source, start_line=2)
        assert _rows([chunk]) == [(2, "y", 2), (3, "z", 3)]
        assert chunk.raw[0] == b"y,2\n"


@pytest.mark.parametrize("name", ["x.txt", "x"])
def test_a_format_that_nothing_tells_is_asked_for(name: str) -> None:
    with pytest.raises(ConfigurationError, match="say csv or parquet"):
        _open(name)


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"id,note\n")
    with pytest.raises(ConfigurationError, match="can't be read as Parquet"):
        _open(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_file_appears_when_it_is_complete(tmp_path: Path, name: str) -> None:
    batch = pa.record_batch({"id": [1, 2], "note": ["x", None]})
    for ends in ("discard", "finish"):
        target = CopyTarget(tmp_path / name, format=None, header=True, csv=CsvFormat())
        target.begin(batch.schema)
        target.write([batch])
        assert not (tmp_path / name).exists()
        getattr(target, ends)()
        assert [file.name for file in tmp_path.iterdir()] == ([] if ends == "discard" else [name])
    chunks = _chunks(tmp_path / name)
    assert [str(row[1]) for row in _rows(chunks)] == ["1", "2"]


def test_a_null_and_an_empty_text_differ_in_csv() -> None:
    assert CsvWriter(CsvFormat()).rows([pa.array(["", None])]) == b'""\n\n'
    assert CsvWriter(CsvFormat(null="-")).rows([pa.array(["-", None, ""])]) == b'"-"\n-\n\n'
