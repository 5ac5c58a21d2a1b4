"""`GET /api/openapi.json`: the OpenAPI 3.1 document, made from the endpoints themselves.

Paths, parameters and responses come from the handlers, and schemas from the classes that bodies are decoded to and responses
are encoded from, so the document can't differ from the code.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import HTTPRoute

from tailrace import __version__
from tailrace.api.server import Problem
from tailrace.broker.broker import Broker
from tailrace.http.problems import MEDIA_TYPE
from tailrace.http.request_guard import CONTENT_TYPE, JSON

PATH = "/api/openapi.json"
_INJECTED = frozenset(
    ("self", "request", "socket", "body", "broker", "status", "registry", "engine", "limits", "event_encoder", "authentication")
)
_REFERENCE = "#/components/schemas/{name}"
_TITLE = "Tailrace"
_TEXT = (
    "Durable topics fed by table changes. Errors are problem+json (RFC 9457) with two more members: `retriable`, whether the"
    " same request may succeed when sent again, and `outcome`, whether it is known to have had no effect."
)
_LOGINS = {
    "password": {"type": "http", "scheme": "basic", "description": "The name and the password of a user."},
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of this server, or one of the issuer that it trusts (JWT).",
    },
    "certificate": {"type": "mutualTLS", "description": "A client certificate of an authority that the server trusts."},
    "session": {"type": "apiKey", "in": "cookie", "name": "tailrace_session", "description": "Set by `POST /api/login`."},
}
"""What requests authenticate with, where the server demands it."""
_OPEN = frozenset(("/health", "/api/login"))
BODY = "body"
RESPONSE = "response"
RESPONSE_TYPES = "response_types"


@get(PATH, opt={"response": dict[str, Any]})
async def openapi(request: Request[Any, Any, Any], broker: NamedDependency[Broker]) -> Response[bytes]:
    """Return this document."""
    found = document(request.app, is_secured=broker.permissions.is_on)
    return Response(msgspec.json.encode(found), media_type=JSON)


def document(app: Litestar, *, is_secured: bool = False) -> dict[str, Any]:
    """Return the document of a server that demands authentication, or of one that does not."""
    operations = list(_operations(app))
    shapes: list[Any] = [Problem]
    for _, _, handler in operations:
        shapes += [shape for shape, _ in _parameter_shapes(handler).values()]
        shapes += _shapes_of(handler)
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    found = {id(shape): schema for shape, schema in zip(shapes, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler in operations:
        paths.setdefault(path, {})[method] = _operation(path, method, handler, found)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": __version__, "description": _TEXT},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _LOGINS},
        **({"security": [{name: []} for name in _LOGINS]} if is_secured else {}),
    }


def _operations(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in sorted(app.routes, key=lambda route: route.path):
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.resolve_include_in_schema() is False:
                    continue
                for method in sorted(handler.http_methods - {"OPTIONS"}):
                    yield route.path_format, method.lower(), handler


def _operation(path: str, method: str, handler: HTTPRouteHandler, schemas: dict[int, Any]) -> dict[str, Any]:
    name = path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace(".", "_")
    described: dict[str, Any] = {
        "operationId": f"{method}_{name}",
        "summary": inspect.cleandoc(handler.fn.__doc__ or ""),
        "responses": _responses(handler, schemas),
    }
    if path in _OPEN:
        described["security"] = []
    if handler.tags:
        described["tags"] = sorted(handler.tags)
    parameters = [
        {
            "name": parameter,
            "in": "path" if f"{{{parameter}}}" in path else "query",
            "required": is_required,
            "schema": schemas[id(shape)],
        }
        for parameter, (shape, is_required) in _parameter_shapes(handler).items()
    ]
    if parameters:
        described["parameters"] = parameters
    if CONTENT_TYPE in handler.opt:
        described["requestBody"] = {"required": True, "content": {handler.opt[CONTENT_TYPE]: {}}}
    elif BODY in handler.opt:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[id(handler.opt[BODY])]}}}
    return described


def _responses(handler: HTTPRouteHandler, schemas: dict[int, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done"}
    content = {kind: {"schema": schemas[id(shape)]} for kind, shape in handler.opt.get(RESPONSE_TYPES, {}).items()}
    responses = [schemas[id(shape)] for shape in _responses_of(handler)]
    if responses:
        content[JSON] = {"schema": responses[0] if len(responses) == 1 else {"anyOf": responses}}
    if content:
        good["content"] = content
    problem = {"content": {MEDIA_TYPE: {"schema": schemas[id(Problem)]}}}
    return {
        str(handler.status_code): good,
        "401": {"description": "Not authenticated", **problem},
        "403": {"description": "Not allowed", **problem},
        "4XX": {"description": "Rejected", **problem},
        "5XX": {"description": "Failed", **problem},
    }


def _shapes_of(handler: HTTPRouteHandler) -> list[Any]:
    body = [handler.opt[BODY]] if BODY in handler.opt else []
    return [*body, *_responses_of(handler), *handler.opt.get(RESPONSE_TYPES, {}).values()]


def _responses_of(handler: HTTPRouteHandler) -> Sequence[Any]:
    """Return the types of the JSON responses of a handler."""
    described = handler.opt.get(RESPONSE)
    if described is not None:
        return described if isinstance(described, tuple) else (described,)
    if RESPONSE_TYPES in handler.opt:
        return ()
    returned = handler.parsed_fn_signature.return_type.annotation
    if get_origin(returned) is Response:
        (returned,) = get_args(returned)
    return () if returned in (None, type(None), bytes) else (returned,)


def parameter_names(handler: BaseRouteHandler) -> list[str]:
    """Return the names of the path and query parameters of a handler."""
    return [name for name in handler.parsed_fn_signature.parameters if name not in _INJECTED]


def _parameter_shapes(handler: HTTPRouteHandler) -> dict[str, tuple[Any, bool]]:
    """Return the type of each parameter, and whether it is required."""
    return {
        name: (field.raw, field.is_required)
        for name, field in handler.parsed_fn_signature.parameters.items()
        if name not in _INJECTED
    }


def describe_endpoint(
    body: Any = None, *, response: Any = None, content_type: str | None = None, response_types: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return options of a handler that describe what its signature does not: the type of its JSON body, and of its JSON
    response, or a tuple of types.

    `content_type` is that of a body that is not JSON. `response_types` are other media types of responses, with their types.
    """
    described = {BODY: body, RESPONSE: response, CONTENT_TYPE: content_type, RESPONSE_TYPES: response_types}
    return {name: value for name, value in described.items() if value is not None}
