"""An answer that is to come: its place among the others of its connection, from the request on."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.kafka.metrics import Traffic
from tailrace.model.commit import Buffer
from tailrace.model.errors import MalformedMessageError, TailraceError, UnanswerableRequestError
from tailrace.model.limits import Limits
from tailrace.wire.message import Api, KafkaMessage, versions_with
from tailrace.wire.message_codec import MessageCodec, MessageSource, skip_tags
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersion, ApiVersionsResponse

ResponseParts = Sequence[Buffer] | None
"""The parts of an answer with its size before it, or nothing where the client expects no answer."""


class PendingResponse:
    """Settled or failed once, by whoever makes the answer; the connection is told, unless it has given up."""

    __slots__ = ("error", "held", "is_given_up", "is_settled", "on_settled", "reply", "request_bytes", "task")

    def __init__(self, task: "asyncio.Task[Any] | None" = None) -> None:
        self.task = task
        """What makes the answer, if it ends with the connection."""
        self.reply: ResponseParts = None
        self.held: ReadAnswer | None = None
        """The room that the answer takes until it is sent."""
        self.error: BaseException | None = None
        self.is_settled = False
        self.is_given_up = False
        self.on_settled: Callable[[PendingResponse], None] | None = None
        self.request_bytes = 0

    def settle(self, reply: ResponseParts) -> None:
        self.reply = reply
        self.is_settled = True
        if self.on_settled is not None:
            self.on_settled(self)

    def fail(self, error: BaseException) -> None:
        """There can be no answer: the connection ends."""
        self.error = error
        self.settle(None)

    def give_up(self) -> None:
        """Nobody is there any more to be answered."""
        self.is_given_up = True
        self.on_settled = None
        if self.task is not None:
            self.task.cancel()


_log = logging.getLogger(__name__)

API_KEY = Struct(">h")
_REQUEST_HEAD = Struct(">hhih")
_RESPONSE_HEAD = Struct(">ii")
_FLEXIBLE_RESPONSE_HEAD = Struct(">iib")
_SIZE_BYTES = 4
_UNKNOWN_SERVER_ERROR = -1
_UNSUPPORTED_VERSION = 35


class KafkaClient(NamedTuple):
    """Who is at the other end of a connection."""

    host: str
    connection: int
    """Counts the connections of this server's life."""


class RequestContext(NamedTuple):
    """One request, apart from its content."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    client: KafkaClient

    def head(self, body_bytes: int) -> bytes:
        """What goes before a body of this size."""
        # Whoever asks for the versions may not know them yet, so its answer begins as it did in version 0.
        if self.api.is_flexible(self.version) and self.api.key != API_VERSIONS_API.key:
            return _FLEXIBLE_RESPONSE_HEAD.pack(_FLEXIBLE_RESPONSE_HEAD.size - _SIZE_BYTES + body_bytes, self.correlation_id, 0)
        return _RESPONSE_HEAD.pack(_RESPONSE_HEAD.size - _SIZE_BYTES + body_bytes, self.correlation_id)


class EncodedResponse(NamedTuple):
    """A response as bytes, in parts that need not be joined."""

    parts: Sequence[Buffer]
    held: ReadAnswer | None = None
    """The room that they take, given back when they are sent."""


HandlerResult = KafkaMessage | EncodedResponse | None


class DeferredResponse(NamedTuple):
    """A response that is made when something is done. It is not cancelled when the connection is lost."""

    future: asyncio.Future[Any]
    respond: Callable[[asyncio.Future[Any]], HandlerResult]


ApiHandler = Callable[[RequestContext, Any], HandlerResult | DeferredResponse | Coroutine[Any, Any, HandlerResult]]


FastPath = Callable[[bytearray], PendingResponse | None]


class ApiRoute(NamedTuple):
    """An API and who answers it."""

    api: Api
    handler: ApiHandler
    lowest: int | None = None
    highest: int | None = None
    overlaps: bool = False
    claimed_lowest: int | None = None
    """What clients are told is the lowest version, where they draw wrong conclusions from the truth."""
    fast_path: FastPath | None = None

    @property
    def versions(self) -> range:
        lowest = self.api.lowest if self.lowest is None else self.lowest
        highest = self.api.highest if self.highest is None else self.highest
        return range(lowest, highest + 1)


class Dispatcher:
    """Finds the handler of each request and turns bytes into messages and back for it."""

    def __init__(self, routes: Iterable[ApiRoute], traffic: Traffic, limits: Limits) -> None:
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

    def dispatch(self, frame: bytearray, client: KafkaClient) -> ResponseParts | PendingResponse:
        """Begin to answer a request. Raises when it can't be answered but by closing the connection."""
        short = self._fast_paths.get(bytes(frame[: API_KEY.size]))
        if short is not None:
            fast_path, name = short
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
        except Exception as error:  # noqa: BLE001  whatever a handler does wrong is answered, and other requests go on
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
        if pending.is_given_up:
            if not done.cancelled():
                # Looked at, so that nobody complains of a failure that nobody looked at.
                done.exception()
        elif done.cancelled():
            pending.fail(asyncio.CancelledError())
        else:
            try:
                reply = self._respond(pending, context, respond, done)
            except Exception as error:  # noqa: BLE001  the connection pays for what its request does
                pending.fail(error)
            else:
                pending.settle(reply)

    def _read_head(self, frame: bytearray, client: KafkaClient) -> tuple[RequestContext, MessageSource]:
        try:
            key, version, correlation_id, id_length = _REQUEST_HEAD.unpack_from(frame)
        except StructError:
            raise MalformedMessageError(f"a request of {len(frame)} bytes has no whole header") from None
        route = self._routes.get(key)
        if route is None:
            raise UnanswerableRequestError(f"there is no answer to requests with the API key {key}")
        if version not in self._versions[key] and key != API_VERSIONS_API.key:
            raise UnanswerableRequestError(f"{route.api.name} is not spoken in version {version}")
        source = MessageSource(memoryview(frame), _REQUEST_HEAD.size, self._limits.request_items)
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
        except Exception as error:  # noqa: BLE001  as above
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
            _log.error("%s of version %d failed", context.api.name, context.version, exc_info=error)
        if context.version not in versions_with(context.api.response, "error_code"):
            raise UnanswerableRequestError(f"{context.api.name} failed and can't say so: {error}") from error
        return self._encode(context, context.api.response(error_code=code))
