"""The index page."""

import re

import httpx

from tailrace import __version__
from tailrace.broker.broker import Broker
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.model.clock import SystemClock
from tailrace.model.errors import StorageFailedError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop

CLOCK = SystemClock()


def client_of(failure: TailraceError | None = None) -> httpx.AsyncClient:
    app = create_app(Broker(MemoryStore(), CLOCK), ServerStatus("fsync", CLOCK, lambda: failure), DEFAULT_LIMITS)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8080")


@on_loop
async def test_the_index_page_shows_version_state_and_command() -> None:
    async with client_of() as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert __version__ in answer.text
    assert "The server works. Durability is fsync" in answer.text
    assert "tailrace sql --server http://localhost:8080<" in answer.text


@on_loop
async def test_every_link_of_the_index_page_works() -> None:
    async with client_of() as client:
        links = re.findall('href="([^"]+)"', (await client.get("/")).text)
        assert links
        assert {link: (await client.get(link)).status_code for link in links} == dict.fromkeys(links, 200)


@on_loop
async def test_a_failure_is_escaped_on_the_index_page() -> None:
    async with client_of(StorageFailedError("<script>alert(1)</script>")) as client:
        shown = (await client.get("/")).text
    assert "The server has failed: " in shown
    assert "<script>" not in shown
