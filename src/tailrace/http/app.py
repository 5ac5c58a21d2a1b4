"""The HTTP surface as one application: a few endpoints at once, and the framework with the others when one is asked for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tailrace.broker.broker import Broker
from tailrace.http.application import Application
from tailrace.http.direct import DirectAnswer, DirectEndpoints, Endpoint
from tailrace.http.engine import Engine, NoEngine
from tailrace.http.fetching import BYTES, fetched
from tailrace.http.guards import FirstLook
from tailrace.http.health import health_of, http_status_of
from tailrace.http.patience import Receive
from tailrace.http.problems import UnexpectedErrors
from tailrace.http.publishing import published
from tailrace.http.status import ServerStatus
from tailrace.model.limits import Limits

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tailrace.http.framework import Framework


def create_app(
    broker: Broker,
    status: ServerStatus,
    limits: Limits,
    collectors: "Sequence[Collector]" = (),
    *,
    engine: Engine | None = None,
    on_loopback: bool = False,
) -> "Application[Framework]":
    """`collectors`: what else is shown on the metrics page. `on_loopback`: only this machine can reach the server."""
    unexpected = UnexpectedErrors()
    first_look = FirstLook(on_loopback)

    def load_framework() -> "Framework":
        from tailrace.http.framework import create_framework

        return create_framework(broker, status, limits, collectors, engine or NoEngine(), first_look, unexpected)

    return Application(DirectEndpoints(_direct(broker, status), first_look, unexpected, limits), load_framework)


def _direct(broker: Broker, status: ServerStatus) -> Mapping[tuple[str, str], Endpoint]:
    async def publish(body: bytes, _: Receive) -> DirectAnswer:
        return DirectAnswer(msgspec.json.encode(await published(body, broker)))

    async def fetch(body: bytes, receive: Receive) -> DirectAnswer:
        with broker.answers.answer().until_sent() as answer:
            return DirectAnswer(await fetched(body, broker, receive, answer), BYTES, held=answer)

    async def health(_: bytes, __: Receive) -> DirectAnswer:
        found = health_of(broker, status)
        return DirectAnswer(msgspec.json.encode(found), status=http_status_of(found))

    return {
        ("POST", "/api/topics/publish"): publish,
        ("POST", "/api/topics/fetch"): fetch,
        ("GET", "/health"): health,
    }
