"""A history in order of time: each call as one value, with the positions of its lines.

Positions (the numbers of lines in that order) stand for time. Call A came before call B when A's completion has a lower
position than B's invocation; otherwise they overlapped, and either may have taken effect first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Generic, TypeVar, cast

from chaos.history import Call, CallAnswer, CallOutcome, Completed, HistoryLine, Invoked

NEVER = 1 << 62
"""The position of an event that has not happened by the end of the history."""

_NOTHING = CallAnswer()

What = TypeVar("What", bound=Call, covariant=True)
Kind = TypeVar("Kind", bound=Call)
Other = TypeVar("Other", bound=HistoryLine)


class Op(Generic[What]):
    """A call from its invocation to its completion. Both ends are positions."""

    __slots__ = ("answer", "begin", "call", "end", "outcome", "surface", "what", "worker")

    def __init__(self, invoked: Invoked, begin: int) -> None:
        self.call = invoked.call
        self.worker = invoked.worker
        self.surface = invoked.surface
        self.what = cast(What, invoked.what)
        self.begin = begin
        self.end = NEVER
        self.outcome = CallOutcome.UNKNOWN
        self.answer = _NOTHING

    @property
    def done(self) -> int:
        """The position by which the call had taken effect. A call of unknown outcome may do so at any later time."""
        return self.end if self.outcome is CallOutcome.OK else NEVER

    @property
    def possible(self) -> bool:
        """Whether the call has taken effect or may have."""
        return self.outcome is not CallOutcome.FAILED


class Timeline:
    def __init__(self, lines: Iterable[HistoryLine]) -> None:
        self.lines: list[HistoryLine] = sorted(lines, key=attrgetter("time"))
        self.ops: dict[int, Op[Call]] = {}
        self.defects: list[str] = []
        """What is wrong with the history itself, so that it can't be judged."""
        self._kinds: dict[type, list[Op[Call]]] = defaultdict(list)
        self._others: dict[type, list[HistoryLine]] = defaultdict(list)
        for position, line in enumerate(self.lines):
            if isinstance(line, Invoked):
                self._invoked(line, position)
            elif isinstance(line, Completed):
                self._completed(line, position)
            else:
                self._others[type(line)].append(line)

    def of(self, kind: type[Kind]) -> list[Op[Kind]]:
        """Return the calls of one kind, in the order of their invocations."""
        return cast(list[Op[Kind]], self._kinds[kind])

    def others(self, kind: type[Other]) -> list[Other]:
        """Return the lines of one kind that belong to no call."""
        return cast(list[Other], self._others[kind])

    def completed(self, *kinds: type[Call]) -> Iterator[Op[Call]]:
        """Return the calls of these kinds that were completed, in the order of their completions."""
        ended = [op for kind in kinds for op in self._kinds[kind] if op.end is not NEVER]
        return iter(sorted(ended, key=attrgetter("end")))

    def time_at(self, position: int) -> float:
        return self.lines[min(position, len(self.lines) - 1)].time

    def _invoked(self, line: Invoked, position: int) -> None:
        if line.call in self.ops:
            self.defects.append(
                f"call {line.call} was invoked twice, at {self.time_at(self.ops[line.call].begin)} and {line.time} s"
            )
            return
        op: Op[Call] = Op(line, position)
        self.ops[line.call] = op
        self._kinds[type(line.what)].append(op)

    def _completed(self, line: Completed, position: int) -> None:
        op = self.ops.get(line.call)
        if op is None or op.end is not NEVER:
            self.defects.append(f"call {line.call} was completed at {line.time} s, but not invoked, or completed before")
            return
        op.end = position
        op.outcome = line.outcome
        op.answer = line.answer
