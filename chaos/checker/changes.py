"""Changes reach the topics that a table feeds: all of them, once, in order for each key, a transaction as a whole (I14, I15).

These rules hold for a table's own change topic and for those to which routes bring its changes, whoever moves them.
"""

from collections import Counter
from collections.abc import Iterator

from chaos.checker.evidence import Evidence, SeenChangeEvent
from chaos.checker.violation import RuleFinding, shown_by
from chaos.history import DELETED, CallOutcome, ChangeCall, DeclaredTopic, ReplayInspection


def lost_change(evidence: Evidence) -> Iterator[RuleFinding]:
    """A change was acked, and its event is not in a topic that it feeds."""
    for declared, values in _values(evidence):
        for (table, value), asked in evidence.changes.by_value.items():
            if table == declared.table and asked.op.outcome is CallOutcome.OK and value not in values:
                yield shown_by(f"{value!r} was written to {table} and is not in {declared.topic}", asked.op, about=(value,))


def torn_change(evidence: Evidence) -> Iterator[RuleFinding]:
    """Some changes of an SQL transaction of unknown outcome are in the tables' own topics, and others are not."""
    found = {declared.table: values for declared, values in _values(evidence) if not declared.routed}
    for op in evidence.timeline.of(ChangeCall):
        written = [(table, value) for table, _, value in op.what.rows if table in found and value is not None]
        there = [(table, value) for table, value in written if value in found[table]]
        missing = [(table, value) for table, value in written if value not in found[table]]
        if there and missing and op.outcome is CallOutcome.UNKNOWN:
            (table, value), (other_table, other) = there[0], missing[0]
            message = (
                f"of one transaction, {value!r} is among the changes of {table} and {other!r} not among those of {other_table}"
            )
            yield shown_by(message, op, found[table][value].op, about=(value, other))


def duplicate_change(evidence: Evidence) -> Iterator[RuleFinding]:
    """A change has two events in a topic, or a row more deletes than were asked for."""
    deletes = Counter(
        (asked.table, asked.key) for asked in evidence.changes.asked if asked.value == DELETED and asked.op.possible
    )
    for declared in evidence.changes.topics:
        for key, events in evidence.changes.in_topic[declared.topic].items():
            first: dict[str, SeenChangeEvent] = {}
            for event in events:
                known = first.setdefault(event.value, event)
                if known is not event and event.value != DELETED:
                    message = (
                        f"{event.value!r} is in {declared.topic} at offsets {known.location.offset} and {event.location.offset}"
                    )
                    yield shown_by(message, known.op, event.op, about=(event.value,))
            count = sum(event.value == DELETED for event in events)
            if count > deletes[declared.table, key]:
                message = f"{key!r} has {count} deletes in {declared.topic}, and {deletes[declared.table, key]} were asked for"
                yield shown_by(message, first[DELETED].op, about=(DELETED,))


def made_up_change(evidence: Evidence) -> Iterator[RuleFinding]:
    """An event of a change that nobody asked for."""
    for declared in evidence.changes.topics:
        for key, events in evidence.changes.in_topic[declared.topic].items():
            for event in events:
                asked = evidence.changes.by_value.get((declared.table, event.value))
                if event.value != DELETED and (asked is None or asked.key != key):
                    message = f"{declared.topic} has {event.value!r} for {key!r}, which nobody wrote to {declared.table}"
                    yield shown_by(message, event.op, about=(event.value,))


def change_order(evidence: Evidence) -> Iterator[RuleFinding]:
    """Of one key, an event stands behind one whose change was asked for only after its own was acked."""
    for declared in evidence.changes.topics:
        for key, events in evidence.changes.in_topic[declared.topic].items():
            latest = None
            for event in events:
                asked = evidence.changes.by_value.get((declared.table, event.value))
                if asked is None:
                    continue
                if latest and asked.op.done < latest.op.begin:
                    yield shown_by(
                        f"in {declared.topic}, {latest.value!r} of {key!r} stands before {event.value!r},"
                        f" which was written earlier",
                        asked.op,
                        latest.op,
                        event.op,
                        about=(event.value, latest.value),
                    )
                if latest is None or asked.op.begin > latest.op.begin:
                    latest = asked


def routed_otherwise(evidence: Evidence) -> Iterator[RuleFinding]:
    """The events of a key in a routed topic are not those in the table's own topic, in their order."""
    own = {line.table: line for line in evidence.changes.topics if not line.routed}
    for declared in evidence.changes.topics:
        source = own.get(declared.table)
        if source is None or not declared.routed:
            continue
        routed = evidence.changes.in_topic[declared.topic]
        changes = evidence.changes.in_topic[source.topic]
        for key in sorted(changes.keys() | routed.keys()):
            told, came = ([event.value for event in events.get(key, ())] for events in (changes, routed))
            if told != came:
                shows = [events[key][-1].op for events in (changes, routed) if events.get(key)]
                yield shown_by(f"{key!r} in {declared.topic}: {_difference(told, came)}", *shows, about=(*told, *came))


def replayed_otherwise(evidence: Evidence) -> Iterator[RuleFinding]:
    """The events of a captured database, replayed, are not its tables, or not those of a transaction boundary."""
    for replayed in evidence.timeline.others(ReplayInspection):
        for finding in replayed.findings:
            yield RuleFinding(f"{replayed.source}: {finding}", at=replayed.time)


def _values(evidence: Evidence) -> Iterator[tuple[DeclaredTopic, dict[str, SeenChangeEvent]]]:
    """Yield each topic that a table feeds, with its events by value, if the topic was read at the end."""
    if not evidence.has_final_reads:
        return
    for declared in evidence.changes.topics:
        keys = evidence.changes.in_topic[declared.topic].values()
        yield declared, {event.value: event for events in keys for event in events}


def _difference(told: list[str], came: list[str]) -> str:
    missing = Counter(told) - Counter(came)
    extra = Counter(came) - Counter(told)
    if missing:
        return f"changes did not come: {_few(list(missing.elements()))}"
    if extra:
        return f"changes came more often than they were made: {_few(list(extra.elements()))}"
    return "changes came in another order than they were made"


def _few(values: list[str]) -> str:
    shown = ", ".join(repr(value) if value != DELETED else "a delete" for value in values[:3])
    return shown + (f" and {len(values) - 3} more" if len(values) > 3 else "")
