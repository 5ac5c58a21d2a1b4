"""`tailrace sql` in scripts: texts from flags, files and pipes, rows to pipes, exit codes."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import Terminal
from tests.integration.statements import rows, run
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


@pytest.fixture(scope="module", autouse=True)
def table(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        run(client, "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, price DECIMAL(10, 2))")
        run(client, "INSERT INTO t VALUES (1, 'ann', 1.5), (2, NULL, NULL), (3, 'a, b', 3)")


def test_rows_go_to_a_pipe_as_json(tailrace: Commands) -> None:
    ended = tailrace.done("sql", "-c", "SELECT * FROM t WHERE id < 3 ORDER BY id")
    assert ended.objects == [{"id": 1, "name": "ann", "price": "1.50"}, {"id": 2, "name": None, "price": None}]
    assert ended.err == ""


def test_rows_as_csv_and_as_a_table(tailrace: Commands) -> None:
    query = "SELECT id, name FROM t WHERE id < 4 ORDER BY id"
    assert tailrace.done("sql", "-c", query, "--format", "csv").out == 'id,name\n1,ann\n2,\n3,"a, b"\n'
    lines = tailrace.done("sql", "-c", query, "--format", "table").out.splitlines()
    assert [line.split() for line in lines[2:]] == [["1", "ann"], ["2", "null"], ["3", "a,", "b"], ["3", "rows"]]


def test_a_terminal_gets_a_table(at_terminal: Callable[..., Terminal]) -> None:
    terminal = at_terminal("sql", "-c", "SELECT id, name FROM t WHERE id = 1")
    assert terminal.end() == 0
    assert terminal.text == "id  name\n────────\n 1  ann\n1 row"


def test_parameters_by_place_and_by_name(tailrace: Commands) -> None:
    assert tailrace.done("sql", "-c", "SELECT id FROM t WHERE name = ? AND id < ?", "-p", "ann", "-p", "9").objects == [
        {"id": 1}
    ]
    assert tailrace.done("sql", "-c", "SELECT name FROM t WHERE id = :id", "-p", "id=3").objects == [{"name": "a, b"}]


def test_a_script_stops_at_its_first_error_and_says_where(tailrace: Commands, client: httpx.Client, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text(
        "INSERT INTO t (id) VALUES (100);\n-- ;\nINSERT INTO t (id)\n  VALUSE (101);\nINSERT INTO t (id) VALUES (102);\n"
    )
    ended = tailrace.run("sql", "-f", str(file))
    assert (ended.code, ended.out) == (1, "")
    head, line, caret = ended.err.splitlines()
    assert head.startswith(f"tailrace: {file}, line 4, column 3: ")
    assert (line, caret) == ("  VALUSE (101);", "  ^")
    assert rows(client, "SELECT id FROM t WHERE id BETWEEN 100 AND 199") == [{"id": 100}]


def test_a_script_is_read_from_a_pipe(tailrace: Commands) -> None:
    text = "SELECT 1 AS a;\nSELECT\n';' AS b; SELECT 3 AS c"
    expected = [{"a": 1}, {"b": ";"}, {"c": 3}]
    assert tailrace.done("sql", "-f", "-", stdin=text).objects == expected
    assert tailrace.done("sql", stdin=text).objects == expected


def test_a_transaction_of_a_script_is_one_request(tailrace: Commands, client: httpx.Client) -> None:
    text = "BEGIN;\nINSERT INTO t (id) VALUES (200);\nINSERT INTO t (id) VALUES (1);\nCOMMIT;\nINSERT INTO t (id) VALUES (201);"
    ended = tailrace.run("sql", stdin=text)
    assert ended.code == 1
    assert rows(client, "SELECT id FROM t WHERE id BETWEEN 200 AND 299") == []


def test_a_script_has_no_bound_of_statements(tailrace: Commands, client: httpx.Client) -> None:
    tailrace.done("sql", stdin="".join(f"INSERT INTO t (id) VALUES ({number});\n" for number in range(1_000, 2_001)))
    assert rows(client, "SELECT count(*) AS count FROM t WHERE id BETWEEN 1000 AND 2000") == [{"count": 1_001}]


def test_rows_that_were_cut_off_are_an_error_for_scripts(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nquery_rows = 2\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as small:
        ended = Commands(small.url).run("sql", "--format", "table", "-c", "SELECT * FROM (VALUES (1), (2), (3)) AS v (a)")
        whole = [
            Commands(small.url).done("sql", "--format", shape, "-c", "SELECT * FROM (VALUES (1), (2), (3)) AS v (a)").out
            for shape in ("csv", "json")
        ]
    assert ended.code == 1
    assert "query_rows" in ended.err
    assert whole == ["a\n1\n2\n3\n", '{"a":1}\n{"a":2}\n{"a":3}\n']


def test_an_export_has_all_rows_however_many(tailrace: Commands) -> None:
    tailrace.done("sql", stdin="CREATE TABLE side (id INTEGER PRIMARY KEY);")
    tailrace.done("sql", stdin="".join(f"INSERT INTO side VALUES ({number});" for number in range(400)))
    exported = tailrace.done("sql", "--format", "csv", "-c", "SELECT a.id * 400 + b.id AS n FROM side a, side b ORDER BY 1").out
    assert exported.splitlines() == ["n", *map(str, range(160_000))]


def test_an_export_that_was_broken_off_is_an_error(tailrace: Commands) -> None:
    query = "SELECT CASE WHEN a.id = 399 AND b.id = 399 THEN 1 / (a.id - 399) END AS x FROM side a, side b"
    ended = tailrace.run("sql", "--format", "csv", "-c", query)
    assert ended.code == 1
    assert 0 < len(ended.out.splitlines()) < 160_001
    assert "the response ended early, so the rows are not complete" in ended.err


@pytest.mark.parametrize(
    "words", [("-c", "SELECT 1", "-f", "x.sql"), ("-c", "SELECT ?", "-p", "1", "-p", "a=2"), ("--format", "xml")]
)
def test_a_wrong_command_line_is_exit_code_2(tailrace: Commands, words: tuple[str, ...]) -> None:
    ended = tailrace.run("sql", *words)
    assert (ended.code, ended.out) == (2, "")


def test_a_text_that_is_not_utf_8_gets_one_clear_line(tailrace: Commands, tmp_path: Path) -> None:
    file = tmp_path / "latin.sql"
    file.write_bytes(b"SELECT '\xe9';")
    ended = tailrace.run("sql", "-f", str(file))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"tailrace: {file} is not UTF-8")


def test_a_file_that_is_not_there_gets_one_clear_line(tailrace: Commands, tmp_path: Path) -> None:
    ended = tailrace.run("sql", "-f", str(tmp_path / "nothing.sql"))
    assert (ended.code, ended.err) == (1, f"tailrace: {tmp_path / 'nothing.sql'}: No such file or directory\n")
