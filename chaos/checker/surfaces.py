"""All surfaces show the same log: the same record at a location, in the same order, and all of them (I12)."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from chaos.checker.evidence import Evidence, PartitionName, ReadRecord
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import PollCall, label


def surfaces_disagree(evidence: Evidence) -> Iterator[RuleFinding]:
    """Two readers found one location to hold records of other keys, cursors or, on other surfaces, values."""
    for one, other in evidence.reads.differing:
        if one.seen.value == other.seen.value or one.op.surface != other.op.surface:
            yield shown_by(
                f"{label(one.seen.location)} is {_describe(one)} by {one.op.surface}"
                f" and {_describe(other)} by {other.op.surface}",
                one.op,
                other.op,
                about=(one.seen.value, other.seen.value),
            )


def cursor_order(evidence: Evidence) -> Iterator[RuleFinding]:
    """One cursor for two locations, or cursors that fall while offsets rise."""
    by_cursor: dict[int, ReadRecord] = {}
    partitions: dict[PartitionName, list[ReadRecord]] = defaultdict(list)
    for location, read in evidence.reads.at.items():
        if read.seen.cursor < 0:
            continue
        partitions[location.topic, location.partition].append(read)
        first = by_cursor.setdefault(read.seen.cursor, read)
        if first is not read:
            message = f"cursor {read.seen.cursor} stands for {label(first.seen.location)} and for {label(location)}"
            yield shown_by(message, first.op, read.op, about=(first.seen.value, read.seen.value))
    for reads in partitions.values():
        reads.sort(key=lambda read: read.seen.location.offset)
        for one, other in pairwise(reads):
            if other.seen.cursor < one.seen.cursor:
                yield shown_by(
                    f"{label(one.seen.location)} has cursor {one.seen.cursor}, and {label(other.seen.location)} a lower one,"
                    f" {other.seen.cursor}",
                    one.op,
                    other.op,
                    about=(one.seen.value, other.seen.value),
                )


def hidden_on_surface(evidence: Evidence) -> Iterator[RuleFinding]:
    """The final reads of one surface passed a record that those of another one found."""
    final: dict[tuple[PartitionName, str], dict[int, ReadRecord]] = defaultdict(dict)
    for op in evidence.timeline.of(PollCall):
        for seen in op.answer.seen if op.what.final else ():
            final[(seen.location.topic, seen.location.partition), op.surface].setdefault(
                seen.location.offset, ReadRecord(seen, op)
            )
    for (partition, surface), found in final.items():
        visible = evidence.reads.visible.get(partition, [])
        passed = visible[bisect_left(visible, min(found)) : bisect_right(visible, max(found))]
        elsewhere = evidence.reads.final[partition]
        hidden = [elsewhere[offset] for offset in passed if offset not in found and offset in elsewhere]
        if hidden:
            first = hidden[0]
            after = min(offset for offset in found if offset > first.seen.location.offset)
            yield shown_by(
                f"{first.op.surface} has {first.seen.value!r} at {label(first.seen.location)}, {surface} passed it"
                f" ({len(hidden)} such records)",
                first.op,
                found[after].op,
                about=(first.seen.value,),
            )


def _describe(read: ReadRecord) -> str:
    seen = read.seen
    return f"value {seen.value!r}, key {seen.key!r}, cursor {seen.cursor}"
