"""The HTTP surface for tests, by the standard library: no test trusts our own client for what it sees."""

import json
import urllib.request
from typing import Any

from tests.support.patience import PATIENCE_SECONDS


class Api:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """The answer to a question; an error's text is in the exception."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  the address is that of the test's own server
            self.url + path, data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:  # noqa: S310
                answer = response.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} answered {error.code}: {error.read().decode()}") from error
        return json.loads(answer) if answer else None

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        self.ask("/api/topics", {"name": name, "partitions": partitions, **({"settings": settings} if settings else {})})

    def sql(self, text: str, *params: object) -> list[list[Any]]:
        """The rows of one statement."""
        rows: list[list[Any]] = self.ask("/api/sql", {"sql": text, "params": list(params)})["rows"]
        return rows
