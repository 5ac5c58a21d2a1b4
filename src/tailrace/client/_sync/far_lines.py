# Generated from _async/far_lines.py by tools/generate_sync.py; change that file, then run it.

"""Connections to a server behind TLS, a password or a proxy: httpx knows how to make them. An exchange costs some tenths of a
millisecond more than by `lines`."""

import ssl
from collections.abc import Callable

import httpx

from tailrace.client.exchange import REQUEST_NAME, Answer, Request

_JSON = {"content-type": "application/json"}


class FarLines:
    def __init__(self, url: str, trust: ssl.SSLContext | None) -> None:
        self._http = httpx.Client(base_url=url, verify=trust or True)

    def exchange(self, request: Request, seconds: float, check: Callable[[Answer], None]) -> Answer:
        """The answer. If `check` does not like it, the connection is closed."""
        method, path, name, body = request
        headers = {REQUEST_NAME: name, **(_JSON if body is not None else {})}
        got = self._http.request(method, path, content=body, headers=headers, timeout=seconds)
        answer = Answer(got.status_code, got.content, got.headers.get(REQUEST_NAME), False)
        is_good = False
        try:
            check(answer)
            is_good = True
        finally:
            if not is_good:
                got.extensions["network_stream"].close()
        return answer

    def close(self) -> None:
        self._http.close()
