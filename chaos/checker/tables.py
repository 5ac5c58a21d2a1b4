"""Tables hold what was written to them, and their change topics say the same (I14).

Each row is a register. Writes are upserts and deletes by key; a delete of a row that is not there makes no event.
"""

from collections import defaultdict
from collections.abc import Iterator

from chaos.checker.evidence import Evidence
from chaos.checker.register import Register, calls_of
from chaos.checker.timeline import Op
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import DELETED, CallOutcome, RowsCall


def stale_row(evidence: Evidence) -> Iterator[RuleFinding]:
    """A row was read as something that a later change had replaced, or that nobody wrote."""
    registers = _row_registers(evidence)
    for op in evidence.timeline.of(RowsCall):
        if op.outcome is not CallOutcome.OK:
            continue
        rows = dict(op.answer.rows)
        for key in registers[op.what.table].keys() | rows.keys():
            value = rows.get(key, DELETED)
            register = registers[op.what.table][key]
            if not register.allows(value, op):
                later = register.disproof(value, op)
                was = f"was {value!r}" if value != DELETED else "was missing"
                why = f"{later.value!r} had been written since" if later and later.value else "nobody had written that"
                if later and later.value == DELETED:
                    why = "it had been deleted since"
                message = f"the row {key!r} of {op.what.table} {was}, but {why}"
                yield RuleFinding(message, (*calls_of([later]), op.call), frozenset({value, str(later.value) if later else ""}))


def failed_change(evidence: Evidence) -> Iterator[RuleFinding]:
    """A change that was refused, in the table or in a topic that it feeds."""
    changes = evidence.changes
    refused = {location: asked for location, asked in changes.by_value.items() if asked.op.outcome is CallOutcome.FAILED}
    for op in evidence.timeline.of(RowsCall) if refused else ():
        for _, value in op.answer.rows:
            asked = refused.get((op.what.table, value))
            if asked:
                yield shown_by(f"{value!r} was refused, and is in {op.what.table}", asked.op, op, about=(value,))
    for declared in changes.topics if refused else ():
        for events in changes.in_topic[declared.topic].values():
            for event in events:
                asked = refused.get((declared.table, event.value))
                if asked:
                    message = f"{event.value!r} was refused, and is in {declared.topic}"
                    yield shown_by(message, asked.op, event.op, about=(event.value,))


def rebuilt_table(evidence: Evidence) -> Iterator[RuleFinding]:
    """The last event of each key in the change topic is not what the table holds at the end."""
    final = _final_rows(evidence)
    for declared in evidence.changes.topics:
        op = final.get(declared.table)
        if op is None or declared.routed:
            continue
        rows = dict(op.answer.rows)
        events = evidence.changes.in_topic[declared.topic]
        for key in sorted(rows.keys() | events.keys()):
            last = events[key][-1] if key in events else None
            rebuilt = last.value if last else DELETED
            value = rows.get(key, DELETED)
            if value != rebuilt:
                yield shown_by(
                    f"the row {key!r} of {declared.table} is {_say(value)}, but by {declared.topic} it is {_say(rebuilt)}",
                    *((last.op,) if last else ()),
                    op,
                    about=(value, rebuilt),
                )


def _row_registers(evidence: Evidence) -> dict[str, dict[str, Register]]:
    registers: dict[str, dict[str, Register]] = defaultdict(lambda: defaultdict(lambda: Register(DELETED)))
    for op in dict.fromkeys(asked.op for asked in evidence.changes.asked):
        # Within a transaction the last change of a row counts: what it replaces is never to be seen.
        last = {(table, key): value for table, key, value in op.what.rows}
        for (table, key), value in last.items() if op.possible else ():
            registers[table][key].wrote(DELETED if value is None else value, op)
    return registers


def _final_rows(evidence: Evidence) -> dict[str, Op[RowsCall]]:
    return {op.what.table: op for op in evidence.timeline.of(RowsCall) if op.what.final and op.outcome is CallOutcome.OK}


def _say(value: str) -> str:
    return repr(value) if value != DELETED else "not there"
