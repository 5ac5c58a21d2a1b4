"""The shortest window around a violation: the calls that show it and the faults between them, one line of text each.

Answers may hold thousands of records; a window has those that the violation is about.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from chaos.checker.timeline import Timeline
from chaos.checker.violation import Violation
from chaos.history import Completed, Fault, Inspected, Invoked, Phase, Seen, Stopped

WIDTH = 240
"""Longer lines are cut."""
RECORDS = 3
"""So many records of an answer are shown when the violation names none of them."""


def window(timeline: Timeline, violation: Violation) -> Iterator[str]:
    for line in timeline.lines:
        if isinstance(line, Invoked | Completed):
            if line.call in violation.calls:
                yield _cut(f"{line.time:10.3f}  {_call(timeline, line, violation.about)}")
        elif isinstance(line, Fault):
            if line.time <= violation.ends and max(line.time, line.until, line.ready) >= violation.begins:
                yield _cut(f"{line.time:10.3f}  {_fault(line)}")
        elif isinstance(line, Phase | Inspected | Stopped) and violation.begins <= line.time <= violation.ends:
            yield _cut(f"{line.time:10.3f}  {_plain(line)}")


def _call(timeline: Timeline, line: Invoked | Completed, about: frozenset[str]) -> str:
    who = timeline.ops[line.call]
    if isinstance(line, Invoked):
        what = msgspec.to_builtins(line.what)
        return f"call {line.call}  {who.worker} ({who.surface}) asks {what.pop('type')}: {_fields(what)}"
    parts = [f"call {line.call}  {who.worker} {line.outcome}"]
    if line.error:
        parts.append(line.error)
    if line.answer.seen:
        parts.append(_records(line.answer.seen, about))
    other = {name: value for name, value in msgspec.to_builtins(line.answer).items() if name != "seen"}
    if other:
        parts.append(_fields(other))
    return ": ".join(parts)


def _records(seen: tuple[Seen, ...], about: frozenset[str]) -> str:
    shown = [one for one in seen if one.value in about] or list(seen[:RECORDS])
    texts = [f"{one.place.topic}/{one.place.partition}@{one.place.offset}={one.value}" for one in shown]
    more = f" and {len(seen) - len(shown)} more" if len(seen) > len(shown) else ""
    return " ".join(texts) + more


def _fault(fault: Fault) -> str:
    until = f", until {fault.until:.3f}" if fault.until >= 0 else ""
    ready = f", ready at {fault.ready:.3f}" if fault.ready >= 0 else ""
    return f"fault  {fault.kind} {fault.detail}".rstrip() + until + ready


def _plain(line: Phase | Inspected | Stopped) -> str:
    fields = msgspec.to_builtins(line)
    kind = fields.pop("type")
    fields.pop("time")
    return f"{kind}  {_fields(fields)}"


def _fields(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in fields.items() if value not in ((), [], "", None, False, -1))


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
