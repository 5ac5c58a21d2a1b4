"""From the bytes of a request to the bytes of its response.

A **handler** answers one API, whatever the version: it gets a `RequestContext` and the request as a class of `wire/messages/`,
and returns the response as another. Fields that the client's version does not have hold their defaults in the request and are
left out of the response, so most handlers never look at `context.version`.

    class ClusterHandlers:
        def __init__(self, cluster: Cluster) -> None: ...

        def routes(self) -> list[ApiRoute]:
            return [ApiRoute(DESCRIBE_CLUSTER_API, self.describe)]

        def describe(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse: ...

- A handler that waits for something is an `async def`; it is cancelled when its connection is lost. A handler that does not
  wait is a plain function and is answered at once.
- Requests of one connection are handled one after another, each when the one before it is answered, as in Kafka. Routes with
  `overlaps` (Produce) may be started before the previous one is answered; the responses keep the order of the requests.
- An error in a part of the request goes into that part of the response: `error.kafka_code`. A `TailraceError` that is raised
  becomes the `error_code` of the whole response where the version has one; otherwise the connection is closed, which Kafka's
  clients understand as "try again". Other exceptions are faults: logged, counted and answered the same way with code -1.
- `ApiRoute.lowest` and `ApiRoute.highest` narrow the versions that are offered to clients.
- Where speed matters, a handler may return a `DeferredResponse` instead of being a coroutine, and an `EncodedResponse` instead
  of a message. `None` is no response at all. A route may have a `fast_path` from the bytes of the most frequent kind of request
  to its response (`handlers/fast_produce.py`); it returns `None` for every other request.
- If authentication is on, a handler, and what it starts, acts as the principal of its client (`broker/security/principals.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.security.principals import act_as, come_by, current_principal
from tailrace.kafka.metrics import Traffic
from tailrace.kafka.sasl import KafkaSession
from tailrace.kafka.throttling import MeteredRequest, Throttle
from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError, TailraceError, UnanswerableRequestError
from tailrace.model.limits import Limits
from tailrace.model.security import ANONYMOUS, Principal
from tailrace.wire.message import Api, KafkaMessage, versions_with
from tailrace.wire.message_codec import MessageCodec, MessageSource, skip_tags
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersion, ApiVersionsResponse

_log = logging.getLogger(__name__)

API_KEY = Struct(">h")
_REQUEST_HEAD = Struct(">hhih")
_RESPONSE_HEAD = Struct(">ii")
_FLEXIBLE_RESPONSE_HEAD = Struct(">iib")
_SIZE_BYTES = 4
_UNKNOWN_SERVER_ERROR = -1
_UNSUPPORTED_VERSION = 35

ResponseParts = Sequence[Buffer] | None
"""The parts of a response, its size first, or `None` if the client expects no response."""


class PendingResponse:
    """The response to a request that has been started: settled or failed once, then sent by the connection in its turn."""

    __slots__ = (
        "error",
        "held",
        "is_abandoned",
        "is_exclusive",
        "is_settled",
        "metered",
        "on_settled",
        "request_bytes",
        "response",
        "task",
    )

    def __init__(self, task: "asyncio.Task[Any] | None" = None) -> None:
        self.task = task
        """The task that makes the response, if it is cancelled with the connection."""
        self.response: ResponseParts = None
        self.held: ReadAnswer | None = None
        """The memory that the response holds until it is sent."""
        self.error: BaseException | None = None
        self.is_settled = False
        self.is_abandoned = False
        self.is_exclusive = False
        """Whether no other request of the connection may be started before this one is answered."""
        self.on_settled: Callable[[PendingResponse], None] | None = None
        self.request_bytes = 0
        self.metered: MeteredRequest | None = None
        """What its client's quotas are charged for, if there are any."""

    def settle(self, response: ResponseParts) -> None:
        self.response = response
        self.is_settled = True
        if self.on_settled is not None:
            self.on_settled(self)

    def fail(self, error: BaseException) -> None:
        """End without a response: the connection is closed."""
        self.error = error
        self.settle(None)

    def abandon(self) -> None:
        """Drop the response: the client is gone."""
        self.is_abandoned = True
        self.on_settled = None
        if self.task is not None:
            self.task.cancel()


class KafkaClient(NamedTuple):
    """The other end of a connection."""

    host: str
    connection: int
    """The number of the connection, counted since the server started."""
    principal: Principal = ANONYMOUS
    session: KafkaSession | None = None
    """Its login, unless authentication is off."""


class RequestContext(NamedTuple):
    """The header of a request, and who sent it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    client: KafkaClient

    def head(self, body_bytes: int) -> bytes:
        """Return the size and the header of a response with a body of this size."""
        # A client that asks for the versions does not know them yet, so this response keeps the header of version 0.
        if self.api.is_flexible(self.version) and self.api.key != API_VERSIONS_API.key:
            return _FLEXIBLE_RESPONSE_HEAD.pack(_FLEXIBLE_RESPONSE_HEAD.size - _SIZE_BYTES + body_bytes, self.correlation_id, 0)
        return _RESPONSE_HEAD.pack(_RESPONSE_HEAD.size - _SIZE_BYTES + body_bytes, self.correlation_id)


class EncodedResponse(NamedTuple):
    """A response as bytes, in parts that are sent without being joined."""

    parts: Sequence[Buffer]
    held: ReadAnswer | None = None
    """The memory that the parts hold, released when they are sent."""


HandlerResult = KafkaMessage | EncodedResponse | None


class DeferredResponse(NamedTuple):
    """A response that is made when a future is done. The future is not cancelled when the connection is lost."""

    future: asyncio.Future[Any]
    respond: Callable[[asyncio.Future[Any]], HandlerResult]


ApiHandler = Callable[[RequestContext, Any], HandlerResult | DeferredResponse | Coroutine[Any, Any, HandlerResult]]
FastPath = Callable[[bytearray], PendingResponse | None]


class ApiRoute(NamedTuple):
    """An API and its handler."""

    api: Api
    handler: ApiHandler
    lowest: int | None = None
    highest: int | None = None
    overlaps: bool = False
    claimed_lowest: int | None = None
    """The lowest version that clients are told, if the true one misleads them."""
    fast_path: FastPath | None = None

    @property
    def versions(self) -> range:
        lowest = self.api.lowest if self.lowest is None else self.lowest
        highest = self.api.highest if self.highest is None else self.highest
        return range(lowest, highest + 1)


class Dispatcher:
    """Decodes each request, calls its handler and encodes the response."""

    def __init__(
        self,
        routes: Iterable[ApiRoute],
        traffic: Traffic,
        limits: Limits,
        *,
        is_secured: bool = False,
        throttle: Throttle | None = None,
    ) -> None:
        """With `is_secured` requests are handled as their client's principal, and as the server otherwise."""
        self._is_secured = is_secured
        self.throttle = throttle
        self._routes = {route.api.key: route for route in routes}
        self._versions = {key: route.versions for key, route in self._routes.items()}
        self._traffic = traffic
        self._limits = limits
        self._codec = MessageCodec()
        self._fast_paths = {
            API_KEY.pack(key): (route.fast_path, route.api.name) for key, route in self._routes.items() if route.fast_path
        }
        self._overlapping = frozenset(key for key, route in self._routes.items() if route.overlaps)

    @property
    def routes(self) -> list[ApiRoute]:
        return list(self._routes.values())

    @property
    def offered(self) -> list[ApiVersion]:
        """Return the APIs and versions that clients are told."""
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
        """Return whether this request may be started before others of its kind are answered."""
        return API_KEY.unpack_from(frame)[0] in self._overlapping

    def dispatch(self, frame: bytearray, client: KafkaClient) -> ResponseParts | PendingResponse:
        """Start a request. Raise if it can only be answered by closing the connection."""
        if self._is_secured and current_principal() is not client.principal:
            # Until another client's request is handled in this context: each begins by saying whose it is.
            act_as(client.principal)
            come_by("kafka")
        fast = self._fast_paths.get(bytes(frame[: API_KEY.size]))
        if fast is not None:
            fast_path, name = fast
            pending = fast_path(frame)
            if pending is not None:
                self._traffic.requests[name] += 1
                return pending
        context, source = self._read_head(frame, client)
        route = self._routes[context.api.key]
        if context.version not in self._versions[context.api.key]:
            return self._encode(
                context._replace(version=0), ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=tuple(self.offered))
            )
        self._traffic.requests[context.api.name] += 1
        request = self._codec.read(context.api.request, context.version, context.api.is_flexible(context.version), source)
        try:
            outcome = route.handler(context, request)
        except Exception as error:  # noqa: BLE001  a faulty handler is answered with an error, and other requests go on
            return self._refuse(context, error)
        if isinstance(outcome, DeferredResponse):
            pending = PendingResponse()
            outcome.future.add_done_callback(partial(self._settle, pending, context, outcome.respond))
            return pending
        if isinstance(outcome, Coroutine):
            task = asyncio.get_running_loop().create_task(outcome, name=context.api.name)
            pending = PendingResponse(task)
            task.add_done_callback(partial(self._settle, pending, context, asyncio.Future.result))
            return pending
        return self._encode(context, outcome)

    def _settle(
        self,
        pending: PendingResponse,
        context: RequestContext,
        respond: Callable[[asyncio.Future[Any]], HandlerResult],
        done: asyncio.Future[Any],
    ) -> None:
        if pending.is_abandoned:
            if not done.cancelled():
                # Retrieved, so that asyncio does not log an exception that was never retrieved.
                done.exception()
        elif done.cancelled():
            pending.fail(asyncio.CancelledError())
        else:
            try:
                response = self._respond(pending, context, respond, done)
            except Exception as error:  # noqa: BLE001  the request costs its client the connection
                pending.fail(error)
            else:
                pending.settle(response)

    def _read_head(self, frame: bytearray, client: KafkaClient) -> tuple[RequestContext, MessageSource]:
        try:
            key, version, correlation_id, id_length = _REQUEST_HEAD.unpack_from(frame)
        except StructError:
            raise MalformedMessageError(f"a request of {len(frame)} bytes has no complete header") from None
        route = self._routes.get(key)
        if route is None:
            raise UnanswerableRequestError(f"API key {key} is not supported")
        if version not in self._versions[key] and key != API_VERSIONS_API.key:
            raise UnanswerableRequestError(f"{route.api.name} is not supported in version {version}")
        source = MessageSource(memoryview(frame), _REQUEST_HEAD.size, self._limits.request_items)
        client_id = None
        if id_length >= 0:
            end = source.at + id_length
            if end > source.end:
                raise MalformedMessageError(
                    f"the client id has {id_length} bytes, but the request has {source.end - source.at} left"
                )
            client_id = frame[source.at : end].decode("utf-8", "replace")
            source.at = end
        if route.api.is_flexible(version) and version in self._versions[key]:
            try:
                skip_tags(source)
            except IndexError:
                raise MalformedMessageError("the request header is truncated") from None
        return RequestContext(route.api, version, correlation_id, client_id, client), source

    def _respond(
        self,
        pending: PendingResponse,
        context: RequestContext,
        respond: Callable[[asyncio.Future[Any]], HandlerResult],
        done: asyncio.Future[Any],
    ) -> ResponseParts:
        try:
            outcome = respond(done)
        except Exception as error:  # noqa: BLE001  as in dispatch
            return self._refuse(context, error)
        if isinstance(outcome, EncodedResponse):
            pending.held = outcome.held
        return self._encode(context, outcome)

    def _encode(self, context: RequestContext, response: HandlerResult) -> ResponseParts:
        if response is None:
            return None
        if isinstance(response, EncodedResponse):
            return (context.head(sum(map(len, response.parts))), *response.parts)
        body = bytearray()
        self._codec.write(response, context.version, context.api.is_flexible(context.version), body)
        return (context.head(len(body)), body)

    def _refuse(self, context: RequestContext, error: Exception) -> ResponseParts:
        if isinstance(error, TailraceError):
            code = error.kafka_code
        else:
            code = _UNKNOWN_SERVER_ERROR
            self._traffic.handler_faults += 1
            _log.error("%s version %d failed", context.api.name, context.version, exc_info=error)
        if context.version not in versions_with(context.api.response, "error_code"):
            raise UnanswerableRequestError(f"{context.api.name} failed, and its response has no error code: {error}") from error
        return self._encode(context, context.api.response(error_code=code))
