"""The few calls that most tests of a running server make."""

import re
from typing import Any

import httpx

from tests.support.patience import PATIENCE_SECONDS


def create(url: str, topic: str, **fields: object) -> None:
    httpx.post(f"{url}/api/topics", json={"name": topic, **fields}, timeout=PATIENCE_SECONDS).raise_for_status()


def publish(url: str, topic: str, *values: object) -> list[int]:
    """Publish the values at once and give their offsets."""
    body = {"messages": [{"topic": topic, "value": value} for value in values]}
    answer = httpx.post(f"{url}/api/topics/publish", json=body, timeout=PATIENCE_SECONDS)
    answer.raise_for_status()
    return [record["offset"] for record in answer.json()["records"]]


def consume(url: str, topic: str, partition: int = 0) -> list[Any]:
    """All values of a partition."""
    values: list[Any] = []
    start = 0
    while True:
        body = {"topic": topic, "partition_id": partition, "start": start, "limit": 10_000}
        answer = httpx.post(f"{url}/api/topics/consume", json=body, timeout=PATIENCE_SECONDS)
        answer.raise_for_status()
        page = answer.json()
        values += [record["value"] for record in page["messages"]]
        start = page["next_offset"]
        if not page["has_more"]:
            return values


def metric(url: str, sample: str) -> float:
    """One sample of the metrics page, named as it stands there."""
    page = httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text
    found = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.MULTILINE)
    assert found is not None, f"there is no {sample}"
    return float(found[1])
