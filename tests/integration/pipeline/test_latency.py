"""ALTER PIPELINE is obeyed by a router that runs, unless its own settings say otherwise."""

from typing import Any

import pytest

from tailrace.pipeline import realtime
from tests.integration.pipeline.conftest import Running
from tests.integration.pipeline.test_router import ALL, MESSAGES, fill
from tests.support.eventually import eventually
from tests.support.routed_tables import RoutedTables
from tests.support.routing_model import Route


class IdleQuery:
    """A real-time query that routes nothing: PyPI does not have the connector that a real one needs."""

    def __init__(self) -> None:
        self.isActive = True

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture
def chat(tables: RoutedTables) -> RoutedTables:
    tables.create(MESSAGES, channel_id="INT", user_id="INT", is_visible="INT", body="TEXT")
    tables.api.create_topic("all", 2)
    tables.route(Route("all", MESSAGES, ALL, "key"))
    return tables


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[IdleQuery]:
    """The real-time queries that were started."""
    started: list[IdleQuery] = []

    def start(*_: Any) -> IdleQuery:
        started.append(IdleQuery())
        return started[-1]

    monkeypatch.setattr(realtime, "has_connector", lambda _: True)
    monkeypatch.setattr(realtime, "start_query", start)
    return started


def seen(tables: RoutedTables) -> dict[str, Any]:
    """The router as the server describes it."""
    found: dict[str, Any] = tables.api.ask("/api/pipelines")[0]
    return found


def set_latency(tables: RoutedTables, latency: str) -> None:
    tables.api.sql(f"ALTER PIPELINE router SET (latency = '{latency}')")


def is_in_mode(tables: RoutedTables, mode: str) -> bool:
    return bool(tables.api.sql("SELECT mode FROM system.pipelines WHERE state = 'running'") == [[mode]])


def test_a_running_router_changes_its_mode_and_back_again(
    chat: RoutedTables, routing: Running, queries: list[IdleQuery]
) -> None:
    with routing():
        fill(chat, 20)
        eventually(lambda: seen(chat)["lag"] == 0, "all changes routed in micro-batches")
        set_latency(chat, "realtime")
        eventually(lambda: is_in_mode(chat, "real-time"), "the real-time mode")
        (query,) = queries
        fill(chat, 20, 100)
        set_latency(chat, "batch")
        eventually(lambda: seen(chat)["lag"] == 0, "all changes routed in micro-batches again")
        assert not query.isActive
        eventually(lambda: is_in_mode(chat, "micro-batch"), "the mode is reported")
        chat.check(["all"])


def test_the_latency_is_obeyed_by_the_next_router(chat: RoutedTables, routing: Running, queries: list[IdleQuery]) -> None:
    set_latency(chat, "realtime")
    with routing():
        eventually(lambda: len(queries) == 1, "a real-time query")
    assert seen(chat)["latency"] == "realtime"


def test_the_settings_of_the_process_win(chat: RoutedTables, routing: Running, queries: list[IdleQuery]) -> None:
    set_latency(chat, "realtime")
    with routing(is_realtime=False):
        fill(chat, 20)
        eventually(lambda: seen(chat)["lag"] == 0, "all changes routed in micro-batches")
        assert is_in_mode(chat, "micro-batch")
    assert queries == []
    set_latency(chat, "batch")
    with routing(is_realtime=True):
        eventually(lambda: len(queries) == 1, "a real-time query")


def test_a_router_without_the_connector_says_what_to_do_and_goes_on(
    chat: RoutedTables, routing: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with routing() as reports:
        fill(chat, 20)
        eventually(lambda: seen(chat)["lag"] == 0, "all changes routed")
        set_latency(chat, "realtime")
        eventually(lambda: seen(chat)["report"]["last_error"] == realtime.NO_CONNECTOR, "what to do")
        fill(chat, 20, 100)
        eventually(lambda: seen(chat)["lag"] == 0, "all changes routed in micro-batches")
        eventually(lambda: reports[-1].last_error == realtime.NO_CONNECTOR, "a report of the batch that says so, too")
        assert is_in_mode(chat, "micro-batch")
        chat.check(["all"])
        set_latency(chat, "batch")
        eventually(lambda: seen(chat)["report"]["last_error"] is None, "no error")
    assert [record.message for record in caplog.records if record.message == realtime.NO_CONNECTOR] == [realtime.NO_CONNECTOR]
