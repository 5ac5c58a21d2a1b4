"""The principal of the request that is being handled, and the surface by which it came.

A surface sets it for each request before it calls the broker, in the task that handles the request; tasks and threads that this
starts with its context have it too. Work of the server that no request has caused is done by `SERVER`.
"""

from contextvars import ContextVar, Token

from tailrace.model.security import SERVER, Principal

_principal: ContextVar[Principal] = ContextVar("principal", default=SERVER)
_surface: ContextVar[str] = ContextVar("surface", default="")


def current_principal() -> Principal:
    return _principal.get()


def act_as(principal: Principal) -> Token[Principal]:
    """Let the rest of this task act as the principal, until `stop_acting` is called with what this returns."""
    return _principal.set(principal)


def stop_acting(token: Token[Principal]) -> None:
    _principal.reset(token)


def current_surface() -> str:
    """Return the surface by which the request came, for the audit: `kafka`, `http`, or nothing if none has said it."""
    return _surface.get()


def come_by(surface: str) -> None:
    """Say by which surface the rest of this task came."""
    _surface.set(surface)
