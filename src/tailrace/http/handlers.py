"""What the framework does with exceptions: each becomes the problem that `problems` has for it."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ExceptionHandlersMap

from tailrace.http.openapi import PATH
from tailrace.http.problems import MEDIA_TYPE, RequestRefusedError, UnexpectedErrors, error_body, problem_body, too_large
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits

_Request = Request[Any, Any, Any]


def exception_handlers(unexpected: UnexpectedErrors, limits: Limits) -> ExceptionHandlersMap:
    def unforeseen(request: _Request, error: Exception) -> Response[bytes]:
        return Response(unexpected.tell(request.method, request.url.path, error), status_code=500, media_type=MEDIA_TYPE)

    def refused(request: _Request, error: HTTPException) -> Response[bytes]:
        return unforeseen(request, error) if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR else _http(request, error)

    def refused_body(request: _Request, _: RequestEntityTooLarge) -> Response[bytes]:
        return _tailrace(request, too_large(limits))

    return {
        TailraceError: _tailrace,
        RequestRefusedError: _refused,
        RequestEntityTooLarge: refused_body,
        HTTPException: refused,
        Exception: unforeseen,
    }


def _tailrace(_: _Request, error: TailraceError) -> Response[bytes]:
    return Response(error_body(error), status_code=error.http_status, media_type=MEDIA_TYPE)


def _refused(_: _Request, error: RequestRefusedError) -> Response[bytes]:
    return Response(problem_body(error.status, error.detail), status_code=error.status, media_type=MEDIA_TYPE)


def _http(request: _Request, error: HTTPException) -> Response[bytes]:
    """What the framework itself refuses."""
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is no {request.url.path}; {PATH} lists what there is"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}"
    elif isinstance(error, ValidationException) and isinstance(error.extra, list):
        detail = "; ".join(f"{fault.get('key')}: {fault.get('message')}" for fault in error.extra if isinstance(fault, dict))
    body = problem_body(error.status_code, detail)
    return Response(body, status_code=error.status_code, media_type=MEDIA_TYPE, headers=error.headers)
