"""Assignments: partitions by topic, and what is common to two of them, or only in one.

Topics are named by their UUID, so that a topic that is made again under the same name is another one. No topic in an assignment
is without partitions.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]

NOTHING_ASSIGNED: Assignment = {}

StoredAssignment = tuple[tuple[bytes, tuple[int, ...]], ...]
"""An assignment as it is stored: the bytes of each UUID, with numbers of partitions."""


def collected(partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    by_topic: dict[UUID, set[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in by_topic.items()}


def common(one: Assignment, other: Assignment) -> Assignment:
    """Return the partitions that are in both."""
    return {topic: both for topic in one.keys() & other.keys() if (both := one[topic] & other[topic])}


def without(one: Assignment, other: Assignment) -> Assignment:
    """Return the partitions of the first that are not in the other."""
    return {topic: left for topic, numbers in one.items() if (left := numbers - other.get(topic, frozenset()))}


def together(one: Assignment, other: Assignment) -> Assignment:
    """Return the partitions of both."""
    return {topic: one.get(topic, frozenset()) | other.get(topic, frozenset()) for topic in one.keys() | other.keys()}


def overlap(one: Assignment, other: Assignment) -> bool:
    """Return whether a partition is in both."""
    return any(not one[topic].isdisjoint(other[topic]) for topic in one.keys() & other.keys())


def is_within(one: Assignment, other: Assignment) -> bool:
    """Return whether all partitions of the first are in the other."""
    return all(numbers <= other.get(topic, frozenset()) for topic, numbers in one.items())


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def to_stored(assignment: Assignment) -> StoredAssignment:
    return tuple((topic.bytes, tuple(sorted(numbers))) for topic, numbers in assignment.items())


def from_stored(stored: StoredAssignment) -> Assignment:
    return {UUID(bytes=topic): frozenset(numbers) for topic, numbers in stored}
