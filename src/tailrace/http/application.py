"""The application that the listener runs: endpoints that need no framework, and the framework, once it is needed.

The framework takes most of the time and memory that HTTP takes to load. A server that is only published to, fetched from and
probed by HTTP never loads it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from tailrace.http.direct import DirectAnswer, DirectEndpoints, Send, send_answer
from tailrace.http.problems import MEDIA_TYPE, problem_body

_log = logging.getLogger("tailrace.http")

F = TypeVar("F", bound=Callable[[Any, Any, Any], Awaitable[None]])


class Application(Generic[F]):
    """`load` gives the framework. It is called in a thread, so that others are served meanwhile; again, if it failed."""

    def __init__(self, direct: DirectEndpoints, load: Callable[[], F]) -> None:
        self.load = load
        self._direct = direct
        self._loading: asyncio.Future[F] | None = None
        self._framework: F | None = None

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        endpoint = self._direct.find(scope)
        if endpoint is not None:
            await self._direct.answer(endpoint, scope, receive, send)
            return
        framework = self._framework or await self._loaded()
        if framework is not None:
            await framework(scope, receive, send)
        elif scope["type"] == "http":
            body = problem_body(503, "the server can't answer this now; its log says why")
            await send_answer(DirectAnswer(body, MEDIA_TYPE, 503), send)

    async def _loaded(self) -> F | None:
        """`None`: it can't be loaded now. What keeps it from that may pass, such as too many open files."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self.load)
        loading = self._loading
        try:
            # Others wait for it too, so it outlives those who lose patience.
            self._framework = await asyncio.shield(loading)
        except Exception:  # noqa: BLE001  whatever it is, what needs no framework is served
            if self._loading is loading:
                self._loading = None
                _log.exception("the framework of HTTP can't be loaded; the next request that needs it tries again")
        return self._framework
