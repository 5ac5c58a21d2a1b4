"""`tailrace sql` with somebody at the terminal."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal
from tests.integration.statements import rows, run
from tests.integration.test_serve import wait_for_metric
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

At = Callable[..., Terminal]


@pytest.fixture(scope="module", autouse=True)
def tables(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        run(client, "CREATE TABLE chat.messages (id BIGINT PRIMARY KEY, body TEXT, is_visible BOOLEAN)")
        run(client, "INSERT INTO chat.messages VALUES (1, 'hello', true), (2, 'world', false)")
        run(client, "CREATE TOPIC shop.orders")


@pytest.fixture
def prompt(at_terminal: At) -> Terminal:
    terminal = at_terminal("sql")
    terminal.wait_for("tailrace>")
    return terminal


def test_it_greets_answers_and_says_how_long_it_took(prompt: Terminal, server: ServerProcess) -> None:
    assert f"at {server.url}" in prompt.text
    prompt.type(f"SELECT id, body FROM chat.messages ORDER BY id;{ENTER}")
    prompt.wait_for("2 rows, ")
    screen = prompt.wait_for_prompt()
    assert "id  body\n─────────\n 1  hello\n 2  world\n2 rows, " in screen
    assert screen.splitlines()[-2].endswith(" ms")
    prompt.type(CTRL_D)
    assert prompt.end() == 0


def test_a_statement_goes_on_until_its_semicolon(prompt: Terminal) -> None:
    prompt.type(f"SELECT body{ENTER}")
    prompt.wait_for("->")
    prompt.type(f"FROM chat.messages -- not yet;{ENTER}")
    prompt.wait_for("->", times=2)
    prompt.type(f"WHERE body <> ';' AND id = 2;{ENTER}")
    prompt.wait_for("1 row, ")
    assert "\nworld\n" in prompt.text


def test_tab_completes_keywords_names_and_columns(prompt: Terminal) -> None:
    prompt.type(f"SELE{TAB}")
    prompt.wait_for("> SELECT")
    prompt.type(f" is_vis{TAB}")
    prompt.type(f" FROM chat.{TAB}")
    prompt.wait_for("FROM chat.messages")
    prompt.type(CTRL_C)
    prompt.type(f"SELECT * FROM chat.messages WHERE is_v{TAB}")
    prompt.wait_for("WHERE is_visible")
    prompt.type(f";{ENTER}")
    prompt.wait_for("1 row, ")


def test_what_is_made_at_the_prompt_can_be_completed_at_once(prompt: Terminal) -> None:
    prompt.type(f"DESCRIBE TOPIC shop.o{TAB}")
    prompt.wait_for("TOPIC shop.orders")
    prompt.type(CTRL_C)
    prompt.type(f"CREATE TOPIC IF NOT EXISTS shop.payments;{ENTER}")
    prompt.wait_for("CREATE TOPIC,")
    prompt.type(f"DESCRIBE TOPIC shop.p{TAB}")
    prompt.wait_for("DESCRIBE TOPIC shop.payments")


def test_history_is_there_the_next_time(at_terminal: At, tmp_path: Path) -> None:
    first = at_terminal("sql")
    first.wait_for("tailrace>")
    first.type(f"SELECT 'remember{ENTER}this';{ENTER}")
    first.wait_for("1 row, ")
    first.type(f"\\q{ENTER}")
    assert first.end() == 0
    second = at_terminal("sql")
    second.wait_for("tailrace>")
    second.type(UP + UP)
    second.wait_for("this';")
    assert "'remember" in second.text
    file = tmp_path / "state" / "tailrace" / "sql_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_error_points_at_its_place_and_the_prompt_goes_on(prompt: Terminal) -> None:
    prompt.type(f"SELECT id{ENTER}FROM chat.messages WHIT id = 1;{ENTER}")
    screen = prompt.wait_for("error: line 2, column ")
    prompt.wait_for("^")
    lines = prompt.text.splitlines()
    caret = next(place for place, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1].strip() == "FROM chat.messages WHIT id = 1;"
    assert "error: line 2, column " in screen
    prompt.type(f"SELECT 1 + 1 AS two;{ENTER}")
    prompt.wait_for("1 row, ")


def test_ctrl_c_stops_the_query_and_not_the_prompt(prompt: Terminal, server: ServerProcess) -> None:
    prompt.type(f"CONSUME FROM shop.orders FROM LATEST WAIT '30s';{ENTER}")
    wait_for_metric(server.url, "tailrace_fetch_waiters", 1)
    prompt.type(CTRL_C)
    prompt.wait_for("cancelled")
    wait_for_metric(server.url, "tailrace_fetch_waiters", 0)
    prompt.type(f"SELECT 40 + 2 AS answer;{ENTER}")
    prompt.wait_for("42")


def test_ctrl_c_clears_what_was_typed(prompt: Terminal) -> None:
    prompt.type(f"SELECT nonsense{ENTER}")
    prompt.wait_for("->")
    prompt.type(CTRL_C)
    prompt.wait_for("tailrace>", times=2)
    prompt.type(f"SELECT 7 AS seven;{ENTER}")
    prompt.wait_for("1 row, ")
    assert "error" not in prompt.text


def test_a_transaction_is_gathered_and_sent_at_commit(prompt: Terminal, client: httpx.Client) -> None:
    prompt.type(f"BEGIN;{ENTER}")
    prompt.wait_for("tailrace*>")
    prompt.type(f"INSERT INTO chat.messages (id) VALUES (10);{ENTER}")
    prompt.wait_for("tailrace*>", times=2)
    prompt.type(f"INSERT INTO chat.messages (id) VALUES (11);{ENTER}")
    prompt.wait_for("tailrace*>", times=3)
    assert rows(client, "SELECT id FROM chat.messages WHERE id >= 10") == []
    prompt.type(f"COMMIT;{ENTER}")
    prompt.wait_for("COMMIT, ")
    assert rows(client, "SELECT id FROM chat.messages WHERE id >= 10 ORDER BY id") == [{"id": 10}, {"id": 11}]
    prompt.wait_for_prompt()


def test_a_transaction_with_an_error_leaves_nothing(prompt: Terminal, client: httpx.Client) -> None:
    prompt.type(f"BEGIN; INSERT INTO chat.messages (id) VALUES (20);{ENTER}")
    prompt.wait_for("tailrace*>")
    prompt.type(f"INSERT INTO chat.messages (id) VALUES (1);{ENTER}COMMIT;{ENTER}")
    prompt.wait_for("error:")
    prompt.wait_for_prompt()
    assert rows(client, "SELECT id FROM chat.messages WHERE id = 20") == []


def test_leaving_in_a_transaction_sends_nothing_and_says_so(prompt: Terminal, client: httpx.Client) -> None:
    prompt.type(f"BEGIN; DELETE FROM chat.messages;{ENTER}")
    prompt.wait_for("tailrace*>")
    prompt.type(CTRL_D)
    prompt.wait_for("not committed")
    assert prompt.end() == 0
    assert rows(client, "SELECT id FROM chat.messages WHERE id = 1") == [{"id": 1}]


def test_backslash_commands(prompt: Terminal) -> None:
    prompt.type(f"\\?{ENTER}")
    prompt.wait_for("timing on or off")
    prompt.type(f"\\d chat.messages{ENTER}")
    prompt.wait_for("is_visible  boolean")
    prompt.type(f"\\d shop.orders{ENTER}")
    prompt.wait_for("partitions ")
    prompt.type(f"\\d nothing.there{ENTER}")
    prompt.wait_for("error:")
    prompt.type(f"\\t{ENTER}")
    prompt.wait_for("timing is off")
    prompt.type(f"\\x{ENTER}")
    prompt.wait_for("always")
    prompt.type(f"SELECT 1 AS one;{ENTER}")
    prompt.wait_for("row 1")
    prompt.wait_for("1 row\n")
    prompt.type(f"\\nonsense{ENTER}")
    prompt.wait_for("there is no \\nonsense")
    prompt.type(f"quit{ENTER}")
    assert prompt.end() == 0


def test_a_server_that_went_away_is_reported_and_the_prompt_continues(at_terminal: At, server: ServerProcess) -> None:
    prompt = at_terminal("sql")
    prompt.wait_for("tailrace>")
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    prompt.type(f"SELECT 1;{ENTER}")
    prompt.wait_for("error:")
    prompt.wait_for_prompt()
    server.flags = ("--http", server.url.removeprefix("http://"))
    server.start()
    prompt.type(f"SELECT 40 + 2 AS answer;{ENTER}")
    prompt.wait_for("42")
