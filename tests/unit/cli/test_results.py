"""Rows as JSON, CSV and tables."""

import csv
import io
import json
from typing import Any

import pytest

from tailrace.cli.sql.results import CsvPrinter, JsonPrinter, ResultPrinter, TablePrinter, note_if_truncated

Captured = pytest.CaptureFixture[str]


def result(types: dict[str, str], *rows: list[Any], **more: Any) -> dict[str, Any]:
    columns = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"columns": columns, "rows": list(rows), "status": f"SELECT {len(rows)}", **more}


def shown(printer: ResultPrinter, captured: Captured, *results: dict[str, Any]) -> str:
    for each in results:
        printer.show(each)
    return captured.readouterr().out


def test_json_is_one_object_for_each_row(capsys: Captured) -> None:
    found = shown(JsonPrinter(), capsys, result({"id": "bigint", "tags": "json"}, [1, ["a"]], [2, None]))
    assert [json.loads(line) for line in found.splitlines()] == [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": None}]


def test_json_keeps_all_columns_of_one_name(capsys: Captured) -> None:
    twice = result({"a": "text"}, ["x", "y", "z"])
    twice["columns"] = [{"name": name, "type": "text"} for name in ("a", "a", "a_2")]
    assert json.loads(shown(JsonPrinter(), capsys, twice)) == {"a": "x", "a_2": "y", "a_2_2": "z"}


def test_csv_is_read_back_as_it_was(capsys: Captured) -> None:
    texts = ["plain", 'with "quotes"', "with, comma", "with\nline", " with space ", "with\rreturn"]
    found = shown(CsvPrinter(), capsys, result({"a": "text", "b,": "text"}, *([text, text] for text in texts)))
    assert list(csv.reader(io.StringIO(found, newline=""))) == [["a", "b,"], *([text, text] for text in texts)]


def test_csv_tells_null_from_an_empty_text(capsys: Captured) -> None:
    found = shown(CsvPrinter(), capsys, result({"a": "text", "b": "text", "c": "boolean"}, [None, "", True]))
    assert found == 'a,b,c\n,"",true\n'


def test_csv_of_several_statements_has_empty_lines_between(capsys: Captured) -> None:
    found = shown(CsvPrinter(), capsys, result({"a": "integer"}, [1]), result({}), result({"b": "integer"}, [2]))
    assert found == "a\n1\n\nb\n2\n"


def test_a_table_says_what_was_done_where_there_are_no_rows(capsys: Captured) -> None:
    done = result({}, status="INSERT 3", affected=3, cursor=4711)
    assert shown(TablePrinter(timing=False), capsys, done) == "INSERT 3, cursor 4711\n"


def test_a_table_writes_control_characters_out(capsys: Captured) -> None:
    found = shown(TablePrinter(timing=False), capsys, result({"a": "text"}, ["\x1b[2Jgone\u202e"]))
    assert "\x1b" not in found
    assert r"\u001b[2Jgone\u202e" in found


def test_a_table_takes_markup_for_text(capsys: Captured) -> None:
    assert "[bold]x[/bold] :smile:" in shown(
        TablePrinter(timing=False), capsys, result({"a": "text"}, ["[bold]x[/bold] :smile:"])
    )


def test_a_table_says_how_many_rows_it_does_not_show(capsys: Captured) -> None:
    found = shown(TablePrinter(timing=False), capsys, result({"a": "integer"}, *([number] for number in range(1_500))))
    assert "999" in found.split()
    assert "1000" not in found.split()
    assert "1,500 rows; the first 1,000 are shown" in found


def test_rows_are_below_each_other_on_demand(capsys: Captured) -> None:
    printer = TablePrinter(timing=False)
    printer.is_vertical = True
    lines = [line.split() for line in shown(printer, capsys, result({"a": "integer", "b": "text"}, [1, None])).splitlines()]
    assert lines == [["row", "1"], ["a", "1"], ["b", "null"], ["1", "row"]]


def test_rows_that_were_cut_off_are_reported(capsys: Captured) -> None:
    assert note_if_truncated(result({"a": "integer"}, [1], truncated=True))
    assert "query_rows" in capsys.readouterr().err
    assert not note_if_truncated(result({"a": "integer"}, [1]))
