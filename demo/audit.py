"""Reads everything back and compares it with what the writers were told."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import httpx

from demo.writers import ORDERS, PAYMENTS, Frame, History, Place

PARTITIONS = 3


class Finding(NamedTuple):
    claim: str
    counted: str
    violations: int


def read_back(client: httpx.Client) -> Mapping[Place, Frame]:
    """Every record of both topics, in the order of partitions and offsets."""
    return {
        place: frame
        for topic in (ORDERS, PAYMENTS)
        for number in range(PARTITIONS)
        for place, frame in _read(client, topic, number)
    }


def audit(history: History, found: Mapping[Place, Frame]) -> list[Finding]:
    copies = {topic: Counter(frame for place, frame in found.items() if place.topic == topic) for topic in (ORDERS, PAYMENTS)}
    promised = {place: frame for frame, places in history.acked.items() for place in places}
    known = history.acked.keys() | history.in_doubt
    present = copies[ORDERS].keys() | copies[PAYMENTS].keys()
    survivors = history.in_doubt & present
    return [
        Finding(
            "acked records are where the ack said",
            f"{len(promised):,} records",
            sum(found.get(place) != frame for place, frame in promised.items()),
        ),
        Finding(
            "no record is there twice",
            f"{len(found):,} records",
            sum(count - 1 for counter in copies.values() for count in counter.values()),
        ),
        Finding(
            "a frame is in both topics or in none",
            f"{len(present):,} frames",
            sum(copies[ORDERS][frame] != copies[PAYMENTS][frame] for frame in present),
        ),
        Finding("each writer's records are in order", f"{len(known):,} sends", _steps_back(found)),
        Finding("offsets have no gap", f"{2 * PARTITIONS} partitions", _gaps(found)),
        Finding(
            "nothing is there that was not sent",
            f"{len(survivors)} of {len(history.in_doubt)} unanswered made it",
            len(present - known),
        ),
    ]


def _read(client: httpx.Client, topic: str, partition: int) -> Iterator[tuple[Place, Frame]]:
    start = 0
    while True:
        answer = client.post(
            "/api/topics/consume", json={"topic": topic, "partition_id": partition, "start": start, "limit": 5_000}
        )
        answer.raise_for_status()
        page = answer.json()
        for record in page["messages"]:
            yield Place(topic, partition, record["offset"]), Frame(**record["value"])
        start = page["next_offset"]
        if not page["has_more"]:
            return


def _steps_back(found: Mapping[Place, Frame]) -> int:
    last: dict[tuple[str, int], int] = {}
    steps = 0
    for place, frame in found.items():
        stream = (place.topic, frame.writer)
        steps += frame.number != last.get(stream, -1) + 1
        last[stream] = frame.number
    return steps


def _gaps(found: Mapping[Place, Frame]) -> int:
    counts = Counter((place.topic, place.partition) for place in found)
    ends: dict[tuple[str, int], int] = {}
    for place in found:
        ends[place.topic, place.partition] = max(place.offset + 1, ends.get((place.topic, place.partition), 0))
    return sum(ends[stream] - count for stream, count in counts.items())
