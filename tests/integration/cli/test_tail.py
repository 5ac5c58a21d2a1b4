"""`tailrace tail` goes on where it was, whatever happens to the server."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.commands import SECONDS, Commands
from tests.integration.topics import create, publish
from tests.support.server import ServerProcess

Stop = Callable[[ServerProcess], object]


@pytest.mark.parametrize("stop", [ServerProcess.terminate, ServerProcess.kill], ids=["stop", "kill"])
def test_it_resumes_over_a_restart_with_nothing_missing_and_nothing_twice(tmp_path: Path, stop: Stop) -> None:
    with ServerProcess(tmp_path / "data") as server, Commands(server.url) as tailrace:
        server.flags = ("--http", server.url.removeprefix("http://"))
        create(server.url, "shop.orders")
        create(server.url, "shop.payments")
        create(server.url, "other")
        tailing = tailrace.start("tail", "shop.*", "--cursor", "beginning", "--limit", "8")
        assert tailing.stdout is not None
        publish(server.url, "shop.orders", 1, 2)
        seen = [json.loads(tailing.stdout.readline())["value"] for _ in range(2)]
        stop(server)
        server.start()
        publish(server.url, "other", "not for us")
        publish(server.url, "shop.payments", 3, 4)
        publish(server.url, "shop.orders", 5, 6, 7, 8)
        out, err = tailing.communicate(timeout=SECONDS)
        assert seen + [json.loads(line)["value"] for line in out.splitlines()] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert tailing.returncode == 0
        assert err.decode().splitlines()[-1] == "to continue: --after 8"


def test_what_comes_while_it_was_away_from_an_empty_log_is_shown(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Commands(server.url) as tailrace:
        server.flags = ("--http", server.url.removeprefix("http://"))
        create(server.url, "orders")
        tailing = tailrace.start("tail", "orders", "--limit", "1")
        wait_for_subscriber(server)
        server.kill()
        server.start()
        publish(server.url, "orders", "while it was away")
        out, _ = tailing.communicate(timeout=SECONDS)
        assert json.loads(out)["value"] == "while it was away"


def test_ctrl_c_says_where_to_go_on(server: ServerProcess, tailrace: Commands) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", "a", "b")
    tailing = tailrace.start("tail", "orders", "--cursor", "beginning", "--format", "value")
    assert tailing.stdout is not None
    assert [tailing.stdout.readline() for _ in range(2)] == [b'"a"\n', b'"b"\n']
    tailing.send_signal(signal.SIGINT)
    _, err = tailing.communicate(timeout=SECONDS)
    assert tailing.returncode == 0
    cursor = err.decode().rpartition("--after ")[2].strip()
    publish(server.url, "orders", "c")
    assert tailrace.done("tail", "orders", "--after", cursor, "--limit", "1", "--format", "value").out == '"c"\n'


def test_a_cursor_that_does_not_say_whether_it_was_seen_is_rejected(tailrace: Commands) -> None:
    ended = tailrace.run("tail", "orders", "--cursor", "4711")
    assert (ended.code, ended.out) == (2, "")
    assert "--after 4711 starts with the message after that cursor, --after 4710 with the message itself" in ended.err
    both = tailrace.run("tail", "orders", "--cursor", "beginning", "--after", "1")
    assert both.code == 2


def test_a_pattern_that_is_wrong_ends_it(tailrace: Commands) -> None:
    ended = tailrace.run("tail", "a..b")
    assert (ended.code, ended.out) == (1, "")
    assert "a..b" in ended.err


def wait_for_subscriber(server: ServerProcess) -> None:
    from tests.integration.test_serve import wait_for_metric

    wait_for_metric(server.url, "tailrace_subscribers", 1)
