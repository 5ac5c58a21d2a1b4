"""`tailrace topics`, `groups` and `routes`; what they have in common: JSON for scripts, questions for people, exit codes."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import httpx
import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.terminal import ENTER, Terminal
from tests.integration.statements import run
from tests.integration.topics import create, publish
from tests.support.server import ServerProcess

At = Callable[..., Terminal]


def test_the_life_of_a_topic(tailrace: Commands, server: ServerProcess) -> None:
    made = tailrace.done("topics", "create", "life.of", "--partitions", "2", "--set", "retention_seconds=60", "--json").objects
    assert (made[0]["name"], made[0]["partitions"]) == ("life.of", 2)
    tailrace.done("topics", "alter", "life.of", "--partitions", "3", "--alias", "other", "--set", "retention_seconds=null")
    publish(server.url, "life.of", 1, 2, 3)
    (found,) = tailrace.done("topics", "describe", "other", "--json").objects
    assert (found["alias"], found["settings"]["retention_seconds"]) == ("other", None)
    assert sum(each["end_offset"] for each in found["partitions"]) == 3
    (listed,) = [topic for topic in tailrace.done("topics", "list", "--json").objects if topic["name"] == "life.of"]
    assert (listed["records"], listed["partitions"]) == (3, 3)
    assert tailrace.done("topics", "clear", "other").out == "cleared life.of\n"
    (cleared,) = tailrace.done("topics", "describe", "life.of", "--json").objects
    assert [each["start_offset"] for each in cleared["partitions"]] == [each["end_offset"] for each in cleared["partitions"]]
    tailrace.done("topics", "delete", "life.of")
    assert tailrace.run("topics", "describe", "life.of").code == 1


def test_tables_for_people_hold_the_same(tailrace: Commands, server: ServerProcess) -> None:
    create(server.url, "people.topic")
    publish(server.url, "people.topic", 1, 2)
    tailrace.done("consume", "people.topic", "--group", "people.group", "--limit", "1", "--ack")
    topics = tailrace.done("topics", "list").out.splitlines()
    assert next(line.split()[:3] for line in topics if line.startswith("people.topic")) == ["people.topic", "1", "2"]
    groups = tailrace.done("groups", "list").out.splitlines()
    assert next(line.split() for line in groups if line.startswith("people.group")) == ["people.group", "Empty", "0", "1"]
    described = tailrace.done("groups", "describe", "people.group").out.splitlines()
    assert described[-1].split() == ["people.topic", "0", "1", "2", "1"]


def test_the_life_of_a_group(tailrace: Commands, server: ServerProcess) -> None:
    create(server.url, "grouped")
    publish(server.url, "grouped", *range(5))
    tailrace.done("consume", "grouped", "--group", "life", "--ack")
    (answer,) = tailrace.done("groups", "reset", "life", "grouped", "--to", "2", "--json").objects
    assert answer["partitions"] == [{"partition_id": 0, "committed_offset": 2}]
    (found,) = tailrace.done("groups", "describe", "life", "--json").objects
    assert (found["lag"], found["offsets"][0]["committed_offset"]) == (3, 2)
    tailrace.done("groups", "delete", "life")
    assert "life" not in [group["group_id"] for group in tailrace.done("groups", "list", "--json").objects]


def test_the_life_of_a_route(tailrace: Commands, client: httpx.Client) -> None:
    run(client, "CREATE TABLE routed (id BIGINT PRIMARY KEY, channel INTEGER); CREATE TOPIC routes.to")
    run(client, "INSERT INTO routed VALUES (1, 42), (2, 7)")
    flags = ("routes.to", "routed", "--on", "insert,update", "--where", "channel = 42", "--payload", "full")
    explained = tailrace.done("routes", "explain", *flags, "--json").objects
    assert [change["matches"] for change in explained] == ["true", "false"]
    assert tailrace.done("routes", "list", "--json").objects == []
    tailrace.done("routes", "add", *flags)
    (route,) = tailrace.done("routes", "list", "--json").objects
    assert (route["source_table"], route["operations"], route["payload_mode"]) == ("routed", ["insert", "update"], "full")
    assert tailrace.run("routes", "add", *flags).code == 1
    tailrace.done("routes", "drop", "routes.to", "routed")
    assert tailrace.done("routes", "list", "--json").objects == []


def test_an_error_in_a_route_points_at_its_place(tailrace: Commands, client: httpx.Client) -> None:
    run(client, "CREATE TABLE pointed (id BIGINT PRIMARY KEY); CREATE TOPIC points.to")
    ended = tailrace.run("routes", "add", "points.to", "pointed", "--where", "id > 1 AND missing = 2")
    assert ended.code == 1
    _, line, caret = ended.err.splitlines()
    assert line[caret.index("^") :].startswith("missing = 2")


def test_a_condition_can_not_smuggle_in_a_statement(tailrace: Commands, client: httpx.Client) -> None:
    run(client, "CREATE TABLE smuggled (id BIGINT PRIMARY KEY); CREATE TOPIC smuggles.to")
    ended = tailrace.run("routes", "add", "smuggles.to", "smuggled", "--where", "true); DROP TOPIC smuggles.to; --")
    assert ended.code == 2
    assert tailrace.run("topics", "describe", "smuggles.to").code == 0


@pytest.mark.parametrize("answer", ["n", "y"])
def test_somebody_at_a_terminal_is_asked_first(at_terminal: At, tailrace: Commands, server: ServerProcess, answer: str) -> None:
    create(server.url, f"asked.{answer}")
    publish(server.url, f"asked.{answer}", 1, 2)
    terminal = at_terminal("topics", "clear", f"asked.{answer}")
    terminal.wait_for(f"2 records of asked.{answer} will be deleted. Continue? [y/N]:")
    terminal.type(answer + ENTER)
    assert terminal.end() == (0 if answer == "y" else 1)
    kept = tailrace.done("consume", f"asked.{answer}", "--format", "value").out
    assert kept == ("" if answer == "y" else "1\n2\n")


def test_yes_is_not_asked(at_terminal: At, server: ServerProcess) -> None:
    create(server.url, "not.asked")
    terminal = at_terminal("topics", "delete", "not.asked", "--yes")
    assert terminal.end() == 0
    assert terminal.text == "deleted not.asked"


def test_a_missing_server_has_another_exit_code_than_a_rejected_request(tailrace: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = tailrace.run("topics", "list", "--server", f"127.0.0.1:{port}")
    assert (ended.code, ended.out) == (69, "")
    assert ended.err.startswith(f"tailrace: no server at http://127.0.0.1:{port}: is `tailrace serve` running?")
    assert len(ended.err.splitlines()) == 1


def test_an_answer_that_never_came_is_an_unknown_outcome(tailrace: Commands) -> None:
    assert _asked_of_one_that_hangs_up(tailrace, "publish", "t", "1") == 70
    assert _asked_of_one_that_hangs_up(tailrace, "topics", "describe", "t") == 69


def test_another_program_that_answers_is_not_a_server(tailrace: Commands) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as other:
        assert other.stdout is not None
        port = other.stdout.readline().decode().split(" port ")[1].split()[0]
        ended = tailrace.run("topics", "list", "--server", f"http://127.0.0.1:{port}")
        other.kill()
    assert ended.code == 1
    assert "not a Tailrace server" in ended.err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[::1"])
def test_an_invalid_address_is_exit_code_2(tailrace: Commands, url: str) -> None:
    ended = tailrace.run("topics", "list", "--server", url)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)


def _asked_of_one_that_hangs_up(tailrace: Commands, *words: str) -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(65_536)
            connection.close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        ended = tailrace.run(*words, "--server", f"http://127.0.0.1:{listener.getsockname()[1]}")
        hanging_up.join()
    assert len(ended.err.splitlines()) == 1
    return ended.code
