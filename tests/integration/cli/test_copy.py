"""`tailrace copy`, and COPY in `tailrace sql`: files in and out, wrong rows by line, wrong command lines, Ctrl-C."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import COLUMNS, CTRL_C, ENTER, Terminal

ROWS = 'id,total,note\n1,10.50,"a,b"\n2,,""\n'


@pytest.fixture
def table(tailrace: Commands) -> str:
    name = f"shop.orders_{uuid4().hex[:8]}"
    tailrace.done("sql", "-c", f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, total DECIMAL(10, 2), note TEXT)")
    return name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text(ROWS)
    return tmp_path / "in.csv"


def test_a_file_goes_in_and_comes_out(tailrace: Commands, table: str, file: Path, tmp_path: Path) -> None:
    assert tailrace.done("copy", table, "from", str(file)).out.startswith(f"2 rows copied into {table} (")
    assert tailrace.done("copy", table, "to", "-", "--format", "csv").out == ROWS
    tailrace.done("copy", table, "to", str(tmp_path / "out.parquet"))
    tailrace.done("sql", "-c", f"DELETE FROM {table}")
    tailrace.done("sql", "-c", f"COPY {table} FROM '{tmp_path}/out.parquet'")
    tailrace.done("copy", table, "to", str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text() == ROWS


def test_numbers_keep_their_scale(tailrace: Commands, tmp_path: Path) -> None:
    name, rows = f"numbers_{uuid4().hex[:8]}", "id,n\n1,1.50\n2,NaN\n3,-Infinity\n4,0.00000000001\n5,\n6," + "7" * 50 + "\n"
    (tmp_path / "in.csv").write_text(rows)
    tailrace.done("sql", "-c", f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, n NUMERIC)")
    tailrace.done("copy", name, "from", str(tmp_path / "in.csv"))
    tailrace.done("copy", name, "to", str(tmp_path / "out.parquet"))
    tailrace.done("sql", "-c", f"DELETE FROM {name}")
    tailrace.done("copy", name, "from", str(tmp_path / "out.parquet"))
    assert tailrace.done("copy", name, "to", "-", "--format", "csv").out == rows
    shown = tailrace.done("sql", "-c", f"SELECT n FROM {name} WHERE id IN (1, 4) ORDER BY id", "--format", "csv").out
    assert shown.split() == ["n", "1.50", "0.00000000001"]


def test_stdin_is_copied_and_the_summary_is_json(tailrace: Commands, table: str) -> None:
    ended = tailrace.done(
        "copy", table, "from", "-", "--format", "csv", "--no-header", "--columns", "note,id", "--json", stdin="x,7\n"
    )
    (told,) = ended.objects
    assert (told["rows"], told["rejected"]) == (1, 0)
    assert tailrace.done("copy", table, "to", "-", "--format", "csv", "--no-header").out == "7,,x\n"


def test_delimiter_and_null_are_as_asked(tailrace: Commands, table: str, file: Path, tmp_path: Path) -> None:
    tailrace.done("copy", table, "from", str(file))
    out = tmp_path / "out.csv"
    tailrace.done("copy", "--query", f"SELECT id, total FROM {table}", "to", str(out), "--delimiter", "\\t", "--null", "-")
    assert out.read_text() == "id\ttotal\n1\t10.50\n2\t-\n"


def test_a_wrong_row_is_named_and_the_copy_goes_on(tailrace: Commands, table: str, file: Path) -> None:
    file.write_text(ROWS + "3,abc,x\n4,1,y\n")
    ended = tailrace.run("copy", table, "from", str(file))
    assert ended.code == 1
    assert ended.err.splitlines() == [
        f"2 rows are in {table}; nothing is in from line 4 on: go on with --start-line 4",
        f'tailrace: {file}, line 4, column total: invalid input syntax for type numeric: "abc"',
    ]
    assert "1 row copied" in tailrace.done("copy", table, "from", str(file), "--start-line", "5").out


def test_skipped_rows_are_told_and_written(tailrace: Commands, table: str, file: Path, tmp_path: Path) -> None:
    file.write_text(ROWS + "3,abc,x\n1,1,again\n5\n")
    bad = tmp_path / "bad.csv"
    ended = tailrace.done("copy", table, "from", str(file), "--on-error", "skip", "--reject-file", str(bad))
    assert ended.out.startswith(f"2 rows copied into {table} (")
    assert ended.out.endswith(f"3 rows rejected, written to {bad}\n")
    assert [line.partition(": ")[0] for line in ended.err.splitlines()] == [
        f"{file}, line 4, column total",
        f"{file}, line 5, column id",
        f"{file}, line 6",
    ]
    assert bad.read_text() == "id,total,note\n3,abc,x\n1,1,again\n5\n"


def test_copy_of_postgresql_runs_in_scripts(tailrace: Commands, table: str, file: Path, tmp_path: Path) -> None:
    file.write_text("id;total;note\n1;2.5;\\N\n")
    out = tmp_path / "out.csv"
    script = f"""COPY {table} FROM '{file}' WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL '\\N');
        COPY (SELECT note, id FROM {table}) TO '{out}';"""
    assert tailrace.done("sql", "-c", script, "--format", "table").out.split() == ["COPY", "1", "COPY", "1"]
    assert out.read_text() == ",1\n"


def test_the_server_refuses_copy_and_says_what_to_use(tailrace: Commands, table: str) -> None:
    ended = tailrace.run("sql", "-c", f"BEGIN; COPY {table} FROM 'x.csv'; COMMIT;")
    assert ended.code == 1
    assert "files of the client" in ended.err
    assert "`tailrace copy`" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["{table}", "in.csv"], 2, "expected TABLE from FILE, or TABLE to FILE"),
        (["{table}", "form", "in.csv"], 2, "expected TABLE from FILE"),
        (["--query", "SELECT 1", "from", "in.csv"], 2, "--query is what to copy to a file"),
        (["{table}", "from", "-"], 2, "add --format csv"),
        (["{table}", "from", "in.txt"], 2, "say csv or parquet"),
        (["{table}", "from", "missing.csv"], 1, "No such file"),
        (["{table}", "from", "in.csv", "--delimiter", "ab"], 2, "one single-byte character"),
        (["{table}", "from", "in.csv", "--columns", "nope"], 2, "no column 'nope'"),
        (["{table}", "from", "in.csv", "--start-line", "99"], 2, "ends before line 99"),
        (["{table}", "from", "in.csv", "--reject-file", "bad.csv"], 2, "add --on-error skip"),
        (["{table}", "to", "out.csv", "--on-error", "skip"], 2, "are for copying from a file"),
        (["no.such", "from", "in.csv"], 1, "no.such"),
        (["--query", "SELECT x FROM nowhere", "to", "out.csv"], 1, "nowhere"),
        (["{table}", "from", "in.csv", "--server", "http://127.0.0.1:1"], 69, "no server at"),
    ],
)
def test_wrong_command_lines_are_refused(
    tailrace: Commands, table: str, file: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(file.parent)
    ended = tailrace.run("copy", *(word.format(table=table) for word in words))
    assert (ended.code, message in ended.err) == (code, True), ended
    assert not (file.parent / "out.csv").exists()


CHILD = """
import sys, time
from tailrace.cli.main import main
from tailrace.client._sync.copy import _CopyRun

send = _CopyRun.send

def slow(run, chunk):
    send(run, chunk)
    time.sleep(0.4)

_CopyRun.send = slow
main()
"""


@pytest.fixture
def slow_copy(table: str, tmp_path: Path) -> list[str]:
    """The words of a copy of many chunks, with a pause after each."""
    large = tmp_path / "large.csv"
    large.write_text("id,total,note\n" + "".join(f"{number},1.5,{'x' * 100}\n" for number in range(200_000)))
    return [sys.executable, "-c", CHILD, "copy", table, "from", str(large)]


def test_a_terminal_shows_a_bar_and_ctrl_c_tells_what_is_in(tailrace: Commands, table: str, slow_copy: list[str]) -> None:
    with Terminal(slow_copy, tailrace.environment) as terminal:
        terminal.wait_until(lambda screen: re.search(r"[1-9][\d,]* rows, ", screen) is not None, "rows that are in")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        told = re.search(
            r"([\d,]+) rows are in \S+ (?:nothing is in from line ([\d,]+) on|lines ([\d,]+) to ([\d,]+) may be)",
            _joined(terminal),
        )
    assert told is not None, terminal.text
    rows, next_line, first, last = (int(found.replace(",", "")) if found else None for found in told.groups())
    (there,) = (row["count"] for row in tailrace.done("sql", "--json", "-c", f"SELECT count(*) FROM {table}").objects)
    assert rows is not None
    assert rows > 0
    assert there in ({rows} if next_line is not None else {rows, (last or 0) - 1})
    assert (next_line or first) == rows + 2


def _joined(terminal: Terminal) -> str:
    """The screen with its lines put together again, where the terminal has broken them."""
    return "".join(line.ljust(COLUMNS) if len(line) < COLUMNS - 1 else line for line in terminal.text.split("\n"))


def test_elsewhere_lines_tell_how_far_it_is(tailrace: Commands, slow_copy: list[str]) -> None:
    child = [
        *slow_copy[:2],
        CHILD.replace("main()\n", "import tailrace.cli.display as display\ndisplay._LINE_SECONDS = 0.5\nmain()\n"),
        *slow_copy[3:],
    ]
    ended = subprocess.run(child, env=tailrace.environment, capture_output=True, text=True, check=True)
    lines = ended.stderr.splitlines()
    assert len(lines) > 1
    assert all(re.fullmatch(r"[\d,]+ rows, [\d.]+ \w+ of [\d.]+ MiB, [\d,]+ rows/s(, \d+ s left)?", line) for line in lines)
    assert ended.stdout.startswith("200,000 rows copied into ")


def test_copy_is_known_to_the_prompt(table: str, file: Path, at_terminal: Callable[..., Terminal]) -> None:
    terminal = at_terminal("sql")
    terminal.wait_for_prompt()
    terminal.type(f"COPY {table} FROM '{file.name}' (HEADER);{ENTER}")
    terminal.wait_for("No such file")
    terminal.type(f"COPY {table} FROM '{file}' (HEADER);{ENTER}")
    terminal.wait_for("COPY 2")
