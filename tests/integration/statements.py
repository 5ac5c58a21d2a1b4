"""SQL over HTTP, as tests of a running server write it."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx


def run(client: httpx.Client, text: str, params: Sequence[object] | Mapping[str, object] = ()) -> dict[str, Any]:
    """The answer to one statement, or to the last of several."""
    answer = ask(client, text, params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    last: dict[str, Any] = body["results"][-1] if "results" in body else body
    return last


def rows(client: httpx.Client, text: str, params: Sequence[object] | Mapping[str, object] = ()) -> list[dict[str, Any]]:
    """The rows of the last statement, by the names of their columns."""
    result = run(client, text, params)
    names = [column["name"] for column in result["columns"]]
    return [dict(zip(names, row, strict=True)) for row in result["rows"]]


def refusal(client: httpx.Client, text: str, params: Sequence[object] | Mapping[str, object] = ()) -> dict[str, Any]:
    """The problem that the server answers with."""
    answer = ask(client, text, params)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem: dict[str, Any] = answer.json()
    return problem


def ask(client: httpx.Client, text: str, params: Sequence[object] | Mapping[str, object] = ()) -> httpx.Response:
    given = dict(params) if isinstance(params, Mapping) else list(params)
    return client.post("/api/sql", json={"sql": text, "params": given})
