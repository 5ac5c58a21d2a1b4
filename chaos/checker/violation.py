"""What rules find, and what a judgement says."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from chaos.checker.timeline import Op, Timeline

if TYPE_CHECKING:
    from chaos.checker.evidence import Evidence


class Found(NamedTuple):
    """A breach of a rule: what is wrong with which values, and the calls that show it; `at` is a moment, where no call does.

    `about` are the values of the records in question: a window leaves out the others.
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
    check: "Callable[[Evidence], Iterable[Found]]"
    count: Callable[[Timeline], int]
    """How many calls or lines of a history it has to judge. Without any, that it finds nothing says nothing."""


class Violation(msgspec.Struct, frozen=True):
    rule: str
    invariant: str
    message: str
    calls: tuple[int, ...]
    about: frozenset[str]
    begins: float
    ends: float
    """The first and the last moment of the lines that show it, in seconds since the run began."""


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The history can't show that all is well. It counts as a failure."""


class Judgement(msgspec.Struct, frozen=True):
    verdict: Verdict
    violations: tuple[Violation, ...]
    """In the order in which they came to light."""
    doubts: tuple[str, ...]
    """Why the verdict is unknown."""

    @property
    def rules_broken(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(violation.rule for violation in self.violations))


def shown_by(message: str, *ops: Op[Any], about: Iterable[str] = ()) -> Found:
    return Found(message, tuple(dict.fromkeys(op.call for op in ops)), frozenset(about))
