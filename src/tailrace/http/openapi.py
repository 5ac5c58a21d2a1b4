"""`GET /api/openapi.json`: the OpenAPI 3.1 document, made from the endpoints themselves.

Shapes are those that bodies are read with and answers are written from, so the document can't say anything else than the code
does: paths, parameters and answers come from the handlers, schemas from `msgspec`.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import HTTPRoute

from tailrace import __version__
from tailrace.api.server import Problem
from tailrace.http.problems import MEDIA_TYPE
from tailrace.http.request_guard import JSON, TAKES

PATH = "/api/openapi.json"
_INJECTED = frozenset(("self", "request", "socket", "body", "broker", "status", "registry", "engine", "limits", "frames"))
_REFERENCE = "#/components/schemas/{name}"
_TITLE = "Tailrace"
_TEXT = (
    "Durable topics fed by table changes. Errors are problem+json (RFC 9457) with two members more: `retriable`, whether the"
    " same request may succeed when it is sent again, and `outcome`, whether it is known to have had no effect."
)


@get(PATH, opt={"answer": dict[str, Any]})
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """This document."""
    return Response(msgspec.json.encode(document(request.app)), media_type=JSON)


def document(app: Litestar) -> dict[str, Any]:
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
        "components": {"schemas": components},
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
    told: dict[str, Any] = {
        "operationId": f"{method}_{name}",
        "summary": inspect.cleandoc(handler.fn.__doc__ or ""),
        "responses": _responses(handler, schemas),
    }
    if handler.tags:
        told["tags"] = sorted(handler.tags)
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
        told["parameters"] = parameters
    if TAKES in handler.opt:
        told["requestBody"] = {"required": True, "content": {handler.opt[TAKES]: {}}}
    elif BODY in handler.opt:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[id(handler.opt[BODY])]}}}
    return told


def _responses(handler: HTTPRouteHandler, schemas: dict[int, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done"}
    content = {kind: {"schema": schemas[id(shape)]} for kind, shape in handler.opt.get(ANSWER_TYPES, {}).items()}
    answers = [schemas[id(shape)] for shape in _answers_of(handler)]
    if answers:
        content[JSON] = {"schema": answers[0] if len(answers) == 1 else {"anyOf": answers}}
    if content:
        good["content"] = content
    problem = {"content": {MEDIA_TYPE: {"schema": schemas[id(Problem)]}}}
    return {
        str(handler.status_code): good,
        "4XX": {"description": "Refused", **problem},
        "5XX": {"description": "Failed", **problem},
    }


def _shapes_of(handler: HTTPRouteHandler) -> list[Any]:
    body = [handler.opt[BODY]] if BODY in handler.opt else []
    return [*body, *_answers_of(handler), *handler.opt.get(ANSWER_TYPES, {}).values()]


def _answers_of(handler: HTTPRouteHandler) -> Sequence[Any]:
    """The shapes of its JSON."""
    told = handler.opt.get(ANSWER)
    if told is not None:
        return told if isinstance(told, tuple) else (told,)
    if ANSWER_TYPES in handler.opt:
        return ()
    returned = handler.parsed_fn_signature.return_type.annotation
    if get_origin(returned) is Response:
        (returned,) = get_args(returned)
    return () if returned in (None, type(None), bytes) else (returned,)


def parameter_names(handler: BaseRouteHandler) -> list[str]:
    """What a request may name, in its path or its query."""
    return [name for name in handler.parsed_fn_signature.parameters if name not in _INJECTED]


def _parameter_shapes(handler: HTTPRouteHandler) -> dict[str, tuple[Any, bool]]:
    """By name: the shape, and whether it must be there."""
    return {
        name: (field.raw, field.is_required)
        for name, field in handler.parsed_fn_signature.parameters.items()
        if name not in _INJECTED
    }


BODY = "body"
ANSWER = "answer"
ANSWER_TYPES = "answer_types"


def describe_endpoint(
    body: Any = None, *, answer: Any = None, takes: str | None = None, answer_types: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Options of a handler: the shape of its JSON body, and of its answer where the return type does not tell; several
    shapes if it has more than one.

    `takes`: another type of body than JSON. `answer_types`: other types of answers, each with its shape.
    """
    told = {BODY: body, ANSWER: answer, TAKES: takes, ANSWER_TYPES: answer_types}
    return {name: value for name, value in told.items() if value is not None}
