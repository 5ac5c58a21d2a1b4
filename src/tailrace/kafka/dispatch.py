"""From the bytes of a request to the bytes of its answer.

A **handler** answers one API, whatever the version: it gets a `Call` and the request as a class of `wire/messages/`, and
returns the response as another. Fields that the client's version does not have hold their defaults in the request and are left
out of the response, so most handlers never look at `call.version`.

    class ClusterHandlers:
        def __init__(self, cluster: Cluster) -> None: ...

        def routes(self) -> list[Route]:
            return [Route(describe_cluster.API, self.describe)]

        def describe(self, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse: ...

- A handler that waits for something is an `async def`; it is cancelled when its connection is lost. One that does not wait is a
  plain function and is answered at once.
- Requests of one connection are handled one after another, each when the one before it is answered, as in Kafka. Routes with
  `overlaps` (Produce) may follow each other before they are answered; the answers keep the order of the requests.
- What is wrong with a part of the request goes into that part of the response: `error.kafka_code`. A `TailraceError` that is
  raised becomes the `error_code` of the whole response where the version has one; else the connection is closed, which is what
  Kafka's clients take for "try again". Other exceptions are faults: logged, counted and answered the same way with code -1.
- `Route.lowest` and `Route.highest` narrow the versions that are offered to clients.
- Where it must be fast, a handler may give `Later` instead of being a coroutine, and `Body`, the bytes of a response, instead
  of a message. `None` is no answer at all. A route may have a `short_way` from the bytes of a request to its answer, for what
  comes most often; it gives nothing where a request is not of that kind.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.kafka.pending import Pending, Reply
from tailrace.kafka.traffic import Traffic
from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError, TailraceError, UnanswerableRequestError
from tailrace.model.limits import Limits
from tailrace.wire.message import Api, Message, versions_with
from tailrace.wire.message_codec import Codec
from tailrace.wire.message_fields import Source, skip_tags
from tailrace.wire.messages import api_versions
from tailrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

_log = logging.getLogger(__name__)

API_KEY = Struct(">h")
_REQUEST_HEAD = Struct(">hhih")
_RESPONSE_HEAD = Struct(">ii")
_FLEXIBLE_RESPONSE_HEAD = Struct(">iib")
_SIZE_BYTES = 4
_UNKNOWN_SERVER_ERROR = -1
_UNSUPPORTED_VERSION = 35


class Client(NamedTuple):
    """Who is at the other end of a connection."""

    host: str
    connection: int
    """Counts the connections of this server's life."""


class Call(NamedTuple):
    """One request, apart from its content."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    client: Client

    def head(self, body_bytes: int) -> bytes:
        """What goes before a body of this size."""
        # Whoever asks for the versions may not know them yet, so its answer begins as it did in version 0.
        if self.api.is_flexible(self.version) and self.api.key != api_versions.API.key:
            return _FLEXIBLE_RESPONSE_HEAD.pack(_FLEXIBLE_RESPONSE_HEAD.size - _SIZE_BYTES + body_bytes, self.correlation_id, 0)
        return _RESPONSE_HEAD.pack(_RESPONSE_HEAD.size - _SIZE_BYTES + body_bytes, self.correlation_id)


class Body(NamedTuple):
    """A response as bytes, in parts that need not be joined."""

    parts: Sequence[Buffer]
    held: ReadAnswer | None = None
    """The room that they take, given back when they are sent."""


Outcome = Message | Body | None


class Later(NamedTuple):
    """A response that is made when something is done. It is not cancelled when the connection is lost."""

    future: asyncio.Future[Any]
    respond: Callable[[asyncio.Future[Any]], Outcome]


Handler = Callable[[Call, Any], Outcome | Later | Coroutine[Any, Any, Outcome]]


ShortWay = Callable[[bytearray], Pending | None]


class Route(NamedTuple):
    """An API and who answers it."""

    api: Api
    handler: Handler
    lowest: int | None = None
    highest: int | None = None
    overlaps: bool = False
    claimed_lowest: int | None = None
    """What clients are told is the lowest version, where they draw wrong conclusions from the truth."""
    short_way: ShortWay | None = None

    @property
    def versions(self) -> range:
        lowest = self.api.lowest if self.lowest is None else self.lowest
        highest = self.api.highest if self.highest is None else self.highest
        return range(lowest, highest + 1)


class Dispatcher:
    """Finds the handler of each request and turns bytes into messages and back for it."""

    def __init__(self, routes: Iterable[Route], traffic: Traffic, limits: Limits) -> None:
        self._routes = {route.api.key: route for route in routes}
        self._versions = {key: route.versions for key, route in self._routes.items()}
        self._traffic = traffic
        self._limits = limits
        self._codec = Codec()
        self._short_ways = {
            API_KEY.pack(key): (route.short_way, route.api.name) for key, route in self._routes.items() if route.short_way
        }
        self._overlapping = frozenset(key for key, route in self._routes.items() if route.overlaps)

    @property
    def routes(self) -> list[Route]:
        return list(self._routes.values())

    @property
    def offered(self) -> list[ApiVersion]:
        """What clients are told that they can ask for."""
        return [
            ApiVersion(
                api_key=key,
                min_version=versions[0] if route.claimed_lowest is None else route.claimed_lowest,
                max_version=versions[-1],
            )
            for key, route in sorted(self._routes.items())
            for versions in (route.versions,)
        ]

    def overlaps(self, frame: bytearray) -> bool:
        """Whether this request may begin before others of its kind are answered."""
        return API_KEY.unpack_from(frame)[0] in self._overlapping

    def dispatch(self, frame: bytearray, client: Client) -> Reply | Pending:
        """Begin to answer a request. Raises when it can't be answered but by closing the connection."""
        short = self._short_ways.get(bytes(frame[: API_KEY.size]))
        if short is not None:
            short_way, name = short
            pending = short_way(frame)
            if pending is not None:
                self._traffic.requests[name] += 1
                return pending
        call, source = self._read_head(frame, client)
        route = self._routes[call.api.key]
        if call.version not in self._versions[call.api.key]:
            return self._encode(
                call._replace(version=0), ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=tuple(self.offered))
            )
        self._traffic.requests[call.api.name] += 1
        request = self._codec.read(call.api.request, call.version, call.api.is_flexible(call.version), source)
        try:
            outcome = route.handler(call, request)
        except Exception as error:  # noqa: BLE001  whatever a handler does wrong is answered, and other requests go on
            return self._refuse(call, error)
        if isinstance(outcome, Later):
            pending = Pending()
            outcome.future.add_done_callback(partial(self._settle, pending, call, outcome.respond))
            return pending
        if isinstance(outcome, Coroutine):
            task = asyncio.get_running_loop().create_task(outcome, name=call.api.name)
            pending = Pending(task)
            task.add_done_callback(partial(self._settle, pending, call, asyncio.Future.result))
            return pending
        return self._encode(call, outcome)

    def _settle(
        self, pending: Pending, call: Call, respond: Callable[[asyncio.Future[Any]], Outcome], done: asyncio.Future[Any]
    ) -> None:
        if pending.is_given_up:
            if not done.cancelled():
                # Looked at, so that nobody complains of a failure that nobody looked at.
                done.exception()
        elif done.cancelled():
            pending.fail(asyncio.CancelledError())
        else:
            try:
                reply = self._respond(pending, call, respond, done)
            except Exception as error:  # noqa: BLE001  the connection pays for what its request does
                pending.fail(error)
            else:
                pending.settle(reply)

    def _read_head(self, frame: bytearray, client: Client) -> tuple[Call, Source]:
        try:
            key, version, correlation_id, id_length = _REQUEST_HEAD.unpack_from(frame)
        except StructError:
            raise MalformedMessageError(f"a request of {len(frame)} bytes has no whole header") from None
        route = self._routes.get(key)
        if route is None:
            raise UnanswerableRequestError(f"there is no answer to requests with the API key {key}")
        if version not in self._versions[key] and key != api_versions.API.key:
            raise UnanswerableRequestError(f"{route.api.name} is not spoken in version {version}")
        source = Source(memoryview(frame), _REQUEST_HEAD.size, self._limits.request_items)
        client_id = None
        if id_length >= 0:
            end = source.at + id_length
            if end > source.end:
                raise MalformedMessageError(f"a client id has {id_length} bytes, and {source.end - source.at} are left")
            client_id = frame[source.at : end].decode("utf-8", "replace")
            source.at = end
        if route.api.is_flexible(version) and version in self._versions[key]:
            try:
                skip_tags(source)
            except IndexError:
                raise MalformedMessageError("the header of a request ends in the middle") from None
        return Call(route.api, version, correlation_id, client_id, client), source

    def _respond(
        self, pending: Pending, call: Call, respond: Callable[[asyncio.Future[Any]], Outcome], done: asyncio.Future[Any]
    ) -> Reply:
        try:
            outcome = respond(done)
        except Exception as error:  # noqa: BLE001  as above
            return self._refuse(call, error)
        if isinstance(outcome, Body):
            pending.held = outcome.held
        return self._encode(call, outcome)

    def _encode(self, call: Call, response: Outcome) -> Reply:
        if response is None:
            return None
        if isinstance(response, Body):
            return (call.head(sum(map(len, response.parts))), *response.parts)
        body = bytearray()
        self._codec.write(response, call.version, call.api.is_flexible(call.version), body)
        return (call.head(len(body)), body)

    def _refuse(self, call: Call, error: Exception) -> Reply:
        if isinstance(error, TailraceError):
            code = error.kafka_code
        else:
            code = _UNKNOWN_SERVER_ERROR
            self._traffic.handler_faults += 1
            _log.error("%s of version %d failed", call.api.name, call.version, exc_info=error)
        if call.version not in versions_with(call.api.response, "error_code"):
            raise UnanswerableRequestError(f"{call.api.name} failed and can't say so: {error}") from error
        return self._encode(call, call.api.response(error_code=code))
