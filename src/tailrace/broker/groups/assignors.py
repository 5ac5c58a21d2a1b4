"""Server-side assignors of the consumer protocol: `uniform` and `range`, by Kafka's names.

An assignor gives each partition of the subscribed topics to one member that subscribes to the topic.

- `uniform` spreads partitions evenly and lets members keep as many of theirs as they can. With equal subscriptions no member
  has more than one partition more than another. With different ones no single partition could move to make it more even.
- `range` gives the members, in the order of their names, consecutive partitions of each topic, so that partitions of the same
  number of topics with the same size go to the same member.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from tailrace.broker.groups.assignment import Assignment, collected

UNIFORM = "uniform"
RANGE = "range"
DEFAULT_ASSIGNOR = UNIFORM

_Partition = tuple[UUID, int]


class AssignedMember(NamedTuple):
    """What an assignor knows of a member."""

    topics: frozenset[UUID]
    """The topics that it subscribes to and that exist."""
    previous: Assignment
    """Its partitions in the last target assignment."""
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, AssignedMember], Mapping[UUID, int]], dict[str, Assignment]]
"""Takes the members by id and the number of partitions of each topic, and returns the partitions of each member."""


def assign_uniformly(members: Mapping[str, AssignedMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    if not members:
        return {}
    if len({member.topics for member in members.values()}) == 1:
        return _assign_same_topics(members, partitions)
    return _assign_different_topics(members, partitions)


def assign_ranges(members: Mapping[str, AssignedMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    in_order = sorted(members, key=lambda member_id: (members[member_id].instance_id or member_id, member_id))
    for topic, count in partitions.items():
        readers = [member_id for member_id in in_order if topic in members[member_id].topics]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + share + (place < extra)
            if end > start:
                assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}


def _assign_same_topics(members: Mapping[str, AssignedMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    topics = sorted(next(iter(members.values())).topics & partitions.keys())
    total = sum(partitions[topic] for topic in topics)
    share, extra = divmod(total, len(members))
    kept: dict[str, list[_Partition]] = {}
    taken: set[_Partition] = set()
    for member_id, member in members.items():
        own = [each for each in _spread(member.previous, topics, partitions) if each not in taken]
        room = share
        if extra and len(own) > share:
            room += 1
            extra -= 1
        kept[member_id] = own[:room]
        taken.update(kept[member_id])
    free = deque((topic, number) for topic in topics for number in range(partitions[topic]) if (topic, number) not in taken)
    open_members = deque(member_id for member_id in members if len(kept[member_id]) < share)
    while open_members:
        member_id = open_members.popleft()
        kept[member_id].append(free.popleft())
        if len(kept[member_id]) < share:
            open_members.append(member_id)
    for member_id in members:
        if free and len(kept[member_id]) == share:
            kept[member_id].append(free.popleft())
    return {member_id: collected(own) for member_id, own in kept.items()}


def _spread(previous: Assignment, topics: list[UUID], partitions: Mapping[UUID, int]) -> list[_Partition]:
    """Return the partitions that still exist, those of all topics in turn, so that the first ones are of many topics."""
    ranked = [
        (rank, place, number)
        for place, topic in enumerate(topics)
        for rank, number in enumerate(sorted(number for number in previous.get(topic, ()) if number < partitions[topic]))
    ]
    ranked.sort()
    return [(topics[place], number) for _, place, number in ranked]


def _assign_different_topics(members: Mapping[str, AssignedMember], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    readers = {
        topic: [member_id for member_id, member in members.items() if topic in member.topics] for topic in sorted(partitions)
    }
    owned: dict[UUID, dict[str, list[int]]] = {topic: {} for topic in readers}
    load = dict.fromkeys(members, 0)
    taken: set[_Partition] = set()
    for member_id, member in members.items():
        for topic, numbers in member.previous.items():
            if topic in partitions and topic in member.topics:
                own = [each for each in sorted(numbers) if each < partitions[topic] and (topic, each) not in taken]
                taken.update((topic, each) for each in own)
                owned[topic][member_id] = own
                load[member_id] += len(own)
    # Those that few members can take go first, while there is a choice for the others.
    for topic in sorted(readers, key=lambda each: len(readers[each])):
        if readers[topic]:
            for number in range(partitions[topic]):
                if (topic, number) not in taken:
                    member_id = min(readers[topic], key=load.__getitem__)
                    owned[topic].setdefault(member_id, []).append(number)
                    load[member_id] += 1
    # Each move makes the sum of the squares of the loads smaller, so this ends.
    while sum(_balance(readers[topic], owned[topic], load) for topic in readers):
        pass
    return {
        member_id: {topic: frozenset(own[member_id]) for topic, own in owned.items() if own.get(member_id)}
        for member_id in members
    }


def _balance(readers: list[str], owned: dict[str, list[int]], load: dict[str, int]) -> bool:
    """Move partitions of one topic from members with many partitions to those with few. Return whether one was moved."""
    moved = False
    while True:
        owners = [member_id for member_id, numbers in owned.items() if numbers]
        if not owners:
            return moved
        most = max(owners, key=load.__getitem__)
        least = min(readers, key=load.__getitem__)
        if load[most] - load[least] <= 1:
            return moved
        owned.setdefault(least, []).append(owned[most].pop())
        load[most] -= 1
        load[least] += 1
        moved = True
