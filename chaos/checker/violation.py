"""What rules find, the judgement of a history, and the lines around a violation.

The window of a violation holds the calls that show it and the faults between them, one line of text each.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from chaos.checker.timeline import Op, Timeline
from chaos.history import Completed, Fault, FsckInspection, Invoked, RunPhase, SeenRecord, ServerStopped

if TYPE_CHECKING:
    from chaos.checker.evidence import Evidence


class RuleFinding(NamedTuple):
    """A violation of a rule: what is wrong with which values, and the calls that show it, or the time `at` if no call does.

    `about` are the values of the records in question; a window leaves out the others.
    """

    message: str
    calls: tuple[int, ...] = ()
    about: frozenset[str] = frozenset()
    at: float = -1.0


class Rule(NamedTuple):
    name: str
    invariant: str
    """Its number in the list of invariants, such as I1."""
    says: str
    check: "Callable[[Evidence], Iterable[RuleFinding]]"
    count: Callable[[Timeline], int]
    """Return how many calls or lines of a history the rule checks. If there are none, finding nothing proves nothing."""


class Violation(msgspec.Struct, frozen=True):
    rule: str
    invariant: str
    message: str
    calls: tuple[int, ...]
    about: frozenset[str]
    begins: float
    ends: float
    """The first and the last time of the lines that show it, in seconds since the run began."""


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The history does not prove that nothing is wrong. It counts as a failure."""


class Judgement(msgspec.Struct, frozen=True):
    verdict: Verdict
    violations: tuple[Violation, ...]
    """In the order in which they became visible."""
    doubts: tuple[str, ...]
    """Why the verdict is unknown."""

    @property
    def rules_broken(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(violation.rule for violation in self.violations))


def shown_by(message: str, *ops: Op[Any], about: Iterable[str] = ()) -> RuleFinding:
    return RuleFinding(message, tuple(dict.fromkeys(op.call for op in ops)), frozenset(about))


WIDTH = 240
"""Longer lines are cut."""
RECORDS = 3
"""The number of records of an answer that are shown if the violation names none of them."""


def window(timeline: Timeline, violation: Violation) -> Iterator[str]:
    for line in timeline.lines:
        if isinstance(line, Invoked | Completed):
            if line.call in violation.calls:
                yield _cut(f"{line.time:10.3f}  {_call(timeline, line, violation.about)}")
        elif isinstance(line, Fault):
            if line.time <= violation.ends and max(line.time, line.until, line.ready) >= violation.begins:
                yield _cut(f"{line.time:10.3f}  {_fault(line)}")
        elif isinstance(line, RunPhase | FsckInspection | ServerStopped) and violation.begins <= line.time <= violation.ends:
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


def _records(seen: tuple[SeenRecord, ...], about: frozenset[str]) -> str:
    shown = [one for one in seen if one.value in about] or list(seen[:RECORDS])
    texts = [f"{one.location.topic}/{one.location.partition}@{one.location.offset}={one.value}" for one in shown]
    more = f" and {len(seen) - len(shown)} more" if len(seen) > len(shown) else ""
    return " ".join(texts) + more


def _fault(fault: Fault) -> str:
    until = f", until {fault.until:.3f}" if fault.until >= 0 else ""
    ready = f", ready at {fault.ready:.3f}" if fault.ready >= 0 else ""
    return f"fault  {fault.kind} {fault.detail}".rstrip() + until + ready


def _plain(line: RunPhase | FsckInspection | ServerStopped) -> str:
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
