"""Who reads which partitions: the `range` assignor of Kafka's clients, so that any of them and this one agree.

Topic by topic, members in the order of their ids get neighbouring partitions; where they do not come out even, the first
members get one more each.
"""

from collections.abc import Mapping, Sequence

RANGE = "range"


def assign_ranges(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
    """By member: its partitions of each topic. `subscriptions` are the topics of each member."""
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    for topic, count in sorted(partitions.items()):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        each, extra = divmod(count, len(members))
        first = 0
        for place, member in enumerate(members):
            size = each + (place < extra)
            if size:
                shares[member][topic] = list(range(first, first + size))
            first += size
    return shares
