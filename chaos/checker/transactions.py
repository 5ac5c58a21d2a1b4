"""Transactions: all of one is seen or nothing, none reads what comes after it, and no input is processed twice (I10)."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from chaos.checker.evidence import Evidence, WrittenRecord
from chaos.checker.groups import OffsetKey, offset_registers
from chaos.checker.timeline import Op
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import CallOutcome, CommittedCall, SendCall, TransactionCall


def torn_transaction(evidence: Evidence) -> Iterator[RuleFinding]:
    """Some records of a transaction, or of an atomic send, are there at the end and others are not."""
    if not evidence.has_final_reads:
        return
    for op in evidence.writes.ops:
        if isinstance(op.what, SendCall) and not op.what.atomic:
            continue
        records = evidence.writes.of(op)
        there = [record for record in records if _was_seen(evidence, record)]
        missing = [record for record in records if not _was_seen(evidence, record) and not evidence.has_left(record.location)]
        if there and missing:
            read = evidence.reads.of_value[there[0].location.topic, there[0].value]
            yield shown_by(
                f"of what {op.worker} wrote as one, {there[0].value!r} was read in {_partition(there[0])} and"
                f" {missing[0].value!r} never in {_partition(missing[0])}",
                op,
                read.op,
                about=(there[0].value, missing[0].value),
            )


def torn_offsets(evidence: Evidence) -> Iterator[RuleFinding]:
    """A group's offset shows that a transaction has ended, but none of its records was ever read."""
    if not evidence.has_final_reads:
        return
    registers = offset_registers(evidence.timeline)
    for op in evidence.timeline.of(CommittedCall):
        if op.outcome is not CallOutcome.OK:
            continue
        for location in op.answer.locations:
            key = OffsetKey(op.what.group, location.topic, location.partition)
            writers = [write.op for write in registers[key].explain(location.offset, op)]
            if writers and all(writer is not None and _is_unseen(evidence, writer) for writer in writers):
                yield shown_by(
                    f"offset {location.offset} of {key} was committed by a transaction of which no record was ever read",
                    *(writer for writer in writers if writer is not None),
                    op,
                )


def processed_twice(evidence: Evidence) -> Iterator[RuleFinding]:
    """Two transactions that have committed took the same record as input, for the same group."""
    takers: dict[tuple[str, str], Op[TransactionCall]] = {}
    for op in _committed(evidence):
        for value in op.what.reads if op.what.group else ():
            first = takers.setdefault((op.what.group or "", value), op)
            if first is not op:
                message = f"{value!r} was processed for group {op.what.group} by {first.worker} and again by {op.worker}"
                yield shown_by(message, first, op, about=(value,))


def g1c(evidence: Evidence) -> Iterator[RuleFinding]:
    """Committed transactions have each read what another of them wrote, in a circle; or one has read what it wrote itself."""
    committed = {op.call: op for op in _committed(evidence)}
    edges: dict[int, list[int]] = defaultdict(list)
    for op in committed.values():
        for value in op.what.reads:
            written = evidence.writes.by_value.get(value)
            if written and written.op.call in committed:
                edges[written.op.call].append(op.call)
    for group in find_cycles(dict(edges)):
        ops = [committed[call] for call in sorted(group)]
        values = {value for op in ops for value in op.what.reads if evidence.writes.by_value[value].op.call in group}
        message = f"{', '.join(f'call {op.call} of {op.worker}' for op in ops)} read each other's records: {sorted(values)}"
        yield shown_by(message, *ops, about=values)


def _committed(evidence: Evidence) -> Iterator[Op[TransactionCall]]:
    """Yield transactions that were acked, and those of unknown outcome whose records were read."""
    for op in evidence.timeline.of(TransactionCall):
        records = evidence.writes.of(op)
        acked = op.outcome is CallOutcome.OK and not op.what.aborted
        if acked or any(record.value in evidence.reads.to_committed_readers for record in records):
            yield op


def _was_seen(evidence: Evidence, record: WrittenRecord) -> bool:
    if record.in_transaction:
        return record.value in evidence.reads.to_committed_readers
    return (record.location.topic, record.value) in evidence.reads.of_value


def _is_unseen(evidence: Evidence, op: Op[Any]) -> bool:
    if not isinstance(op.what, TransactionCall):
        return False
    records = evidence.writes.of(op)
    return bool(records) and not any(_was_seen(evidence, record) or evidence.has_left(record.location) for record in records)


def _partition(record: WrittenRecord) -> str:
    return f"{record.location.topic}/{record.location.partition}"


GraphNode = TypeVar("GraphNode", bound=Hashable)


def find_cycles(edges: Mapping[GraphNode, Iterable[GraphNode]]) -> Iterator[list[GraphNode]]:
    """Yield the cycles of a graph: groups of nodes that can all reach each other (Tarjan, without recursion)."""
    number: dict[GraphNode, int] = {}
    lowest: dict[GraphNode, int] = {}
    path: list[GraphNode] = []
    on_path: set[GraphNode] = set()
    for root in edges:
        if root in number:
            continue
        calls = [(root, iter(edges.get(root, ())))]
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        while calls:
            node, targets = calls[-1]
            for target in targets:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    path.append(target)
                    on_path.add(target)
                    calls.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_path:
                    lowest[node] = min(lowest[node], number[target])
            else:
                calls.pop()
                if calls:
                    above = calls[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    group = _cut_off(path, node)
                    on_path.difference_update(group)
                    if len(group) > 1 or node in edges.get(node, ()):
                        yield group


def _cut_off(path: list[GraphNode], first: GraphNode) -> list[GraphNode]:
    """Remove and return the end of the path, from its last `first` on."""
    group = [path.pop()]
    while group[-1] != first:
        group.append(path.pop())
    return group
