"""Nothing that a client can ask for is missing in the policy, and nothing is in it that is not there."""

import asyncio
from collections.abc import Iterator

from litestar import Litestar
from litestar.routes import HTTPRoute, WebSocketRoute

from tailrace.broker.broker import Broker
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.kafka.cluster import KafkaSettings
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql import statements
from tailrace.sql.statements import Statement
from tailrace.store.memory import MemoryStore
from tests.security.policy import HTTP, KAFKA, PRINCIPALS, SQL, Rule, SqlRule
from tests.support.kafka import running_asker
from tools.render_policy import PAGE, rendered

_ABSTRACT = ("PostgresStatement", "SecurityStatement")
"""Bases of statements, which are none themselves."""


def test_every_api_of_kafka_is_in_the_policy() -> None:
    async def names() -> list[str]:
        async with running_asker(KafkaSettings(client_telemetry=True)) as asker:
            return [route.api.name for route in asker.dispatcher.routes]

    assert sorted(KAFKA) == sorted(asyncio.run(names()))


def test_every_endpoint_of_http_is_in_the_policy() -> None:
    assert sorted(HTTP) == sorted(_endpoints())


def test_every_statement_of_sql_is_in_the_policy() -> None:
    assert sorted({rule.statement for rule in SQL}) == sorted(_statements())


def test_every_rule_is_about_each_principal() -> None:
    rules: list[Rule | SqlRule] = [*KAFKA.values(), *HTTP.values(), *SQL]
    for rule in rules:
        assert len(rule.allowed) == len(PRINCIPALS), rule
        assert set(rule.allowed) <= {"+", "-"}, rule
        assert rule.needs, rule


def test_the_policy_is_the_page_of_the_reference() -> None:
    assert PAGE.read_text() == rendered(), "python -m tools.render_policy writes the page anew"


def _endpoints() -> Iterator[str]:
    app = _litestar()
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method in {method for handler in route.route_handlers for method in handler.http_methods} - {"OPTIONS"}:
                yield f"{method} {route.path_format}"
        elif isinstance(route, WebSocketRoute):
            yield f"WEBSOCKET {route.path_format}"


def _litestar() -> Litestar:
    clock = SystemClock()
    broker = Broker(MemoryStore(), clock)
    return create_app(broker, ServerStatus("fsync", clock, lambda: None), DEFAULT_LIMITS).load()


def _statements() -> Iterator[str]:
    for name, found in vars(statements).items():
        if isinstance(found, type) and issubclass(found, Statement) and found is not Statement and name not in _ABSTRACT:
            yield name
