"""Which offsets a batch reads, and how they are shared out to tasks. Pure arithmetic."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

Offsets = Mapping[str, list[int]]
"""By topic, an offset for each partition."""


NO_UUIDS: Mapping[str, str] = {}


class OffsetRange(NamedTuple):
    """What one task reads: from `start` up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_uuid: str | None = None
    """Which topic of that name, if it is known."""


def ranges_between(start: Offsets, end: Offsets, uuids: Mapping[str, str] = NO_UUIDS) -> Iterator[OffsetRange]:
    """What lies between. Partitions that are not in `start` are read from 0. `uuids` are those of the topics, if known."""
    for topic, ends in sorted(end.items()):
        starts = start.get(topic, [])
        for number, upto in enumerate(ends):
            at = starts[number] if number < len(starts) else 0
            if upto > at:
                yield OffsetRange(topic, number, at, upto, uuids.get(topic))


def limited(start: Offsets, end: Offsets, most: int) -> dict[str, list[int]]:
    """An end with at most so many records, each partition in proportion to what waits there, and none forgotten."""
    waiting = list(ranges_between(start, end))
    total = sum(each.end - each.start for each in waiting)
    if total <= most:
        return {topic: list(ends) for topic, ends in end.items()}
    found = {topic: list(ends) for topic, ends in end.items()}
    left = most
    for each in waiting:
        share = min(left, max(1, (each.end - each.start) * most // total))
        found[each.topic][each.partition] = each.start + share
        left -= share
    return found


def split(ranges: list[OffsetRange], least_tasks: int) -> list[OffsetRange]:
    """At least so many tasks where there are records enough, by cutting the longest ranges; in the same order."""
    total = sum(each.end - each.start for each in ranges)
    if len(ranges) >= least_tasks or not total:
        return ranges
    found = []
    for each in ranges:
        size = each.end - each.start
        pieces = min(size, max(1, round(size * least_tasks / total)))
        cuts = [each.start + size * piece // pieces for piece in range(pieces + 1)]
        found += [each._replace(start=low, end=high) for low, high in pairwise(cuts)]
    return found
