"""Unknown query parameters are rejected."""

import httpx
import pytest

from tailrace.broker.broker import Broker
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop

CLOCK = SystemClock()


def client_of() -> httpx.AsyncClient:
    app = create_app(Broker(MemoryStore(), CLOCK), ServerStatus("fsync", CLOCK, lambda: None), DEFAULT_LIMITS)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("/api/topics?limt=5", "/api/topics has no query parameter 'limt'; did you mean 'limit'? it takes "),
        ("/api/subscribe?pattern=a&cursr=beginning", "'cursr'; did you mean 'cursor'? it takes pattern, cursor, after"),
        ("/api/openapi.json?pretty", "/api/openapi.json has no query parameter 'pretty'; it takes none"),
    ],
)
def test_a_misspelled_parameter_is_answered_with_a_suggestion(asked: str, told: str) -> None:
    @on_loop
    async def scenario() -> None:
        async with client_of() as client:
            answer = await client.get(asked)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
        assert told in answer.json()["detail"]

    scenario()


@on_loop
async def test_unknown_parameters_are_allowed_outside_of_the_api() -> None:
    async with client_of() as client:
        for asked in ("/metrics?name[]=tailrace_topics", "/health?probe=1", "/?from=elsewhere", "/api/topics?limit=5"):
            assert (await client.get(asked)).status_code == 200
