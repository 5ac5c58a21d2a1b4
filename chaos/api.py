"""The server's HTTP API as a run uses it: plain requests, each with an outcome that is never guessed."""

from collections.abc import Mapping
from typing import Any

import httpx

from chaos.history import CallOutcome

TIMEOUT_SECONDS = 5.0


class RefusedError(Exception):
    """A request that did not succeed. `outcome` says whether it may have taken effect."""

    def __init__(self, outcome: CallOutcome, detail: str, *, kind: str = "", fields: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.kind = kind
        self.fields = fields or {}


class RunApi:
    def __init__(self, url: str, timeout: float = TIMEOUT_SECONDS) -> None:
        self._client = httpx.Client(base_url=url, timeout=timeout)

    def __enter__(self) -> "RunApi":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        return self._ask("POST", path, body)

    def sql(self, text: str, *params: object) -> Any:
        return self.post("/api/sql", {"sql": text, "params": list(params)})

    def create_topic(self, name: str, partitions: int, **settings: object) -> None:
        self.post("/api/topics", {"name": name, "partitions": partitions, "settings": settings})

    def bounds(self, topic: str) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = self.get(f"/api/topics/{topic}/partitions")["partitions"]
        return rows

    def _ask(self, method: str, path: str, body: object) -> Any:
        try:
            response = self._client.request(method, path, json=body) if body is not None else self._client.request(method, path)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # No connection, so nothing was sent.
            raise RefusedError(CallOutcome.FAILED, f"{type(error).__name__}: {error}") from error
        except httpx.HTTPError as error:
            raise RefusedError(CallOutcome.UNKNOWN, f"{type(error).__name__}: {error}") from error
        if response.is_error:
            raise _refused(response)
        return response.json() if response.content else None


def _refused(response: httpx.Response) -> RefusedError:
    try:
        problem = response.json()
    except ValueError:
        return RefusedError(CallOutcome.UNKNOWN, f"{response.status_code}: {response.text[:200]}")
    outcome = CallOutcome.FAILED if problem.get("outcome", "failed") == "failed" else CallOutcome.UNKNOWN
    kind = str(problem.get("type", "")).rpartition(":")[2]
    return RefusedError(outcome, f"{response.status_code} {problem.get('detail', '')}", kind=kind, fields=problem)
