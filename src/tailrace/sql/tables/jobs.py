"""What the writer's thread is asked to do: values between it and the event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.model.ids import RouteId, TableId
from tailrace.model.record import Message
from tailrace.model.route import Route
from tailrace.model.table import Table
from tailrace.sql.parameters import Parameters
from tailrace.sql.result import Result
from tailrace.sql.statements import Query, Write

_PARAMETER_BYTES = 32
_SAMPLED_ROWS = 16


@dataclass(slots=True, eq=False)
class WriteJob:
    """One transaction of a client."""

    tx: str
    statements: Sequence[Write | Query]
    params: Sequence[Parameters]
    messages: Sequence[Message]
    future: "asyncio.Future[list[Result]]"
    size: int
    submitted: float = 0.0
    """When, by the clock that never goes back."""
    is_long: bool = False
    """Whether it is known to take long; then it waits in a line of its own."""
    interruptions: int = 0
    """How often it was interrupted as one that takes long, because others waited."""
    results: list[Result] = field(default_factory=list)
    firsts: list[int | None] = field(default_factory=list)
    """For each statement, the number of its first event in the group, if it changed anything."""


@dataclass(slots=True, eq=False)
class SchemaJob:
    """A table that is made or dropped, in the log first."""

    log: Callable[[], Coroutine[Any, Any, Table]]
    makes: Table | None
    """What the new table looks like, to be tried out before the log has it."""
    drops: tuple[TableId, str] | None
    future: "asyncio.Future[Table]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RouteJob:
    """A route with a snapshot that is put in force while no change is on its way."""

    log: Callable[[], Coroutine[Any, Any, Route]]
    future: "asyncio.Future[Route]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RebuildJob:
    """The file was found to be damaged, and is made again."""

    error: Exception
    future: "asyncio.Future[None]"
    size: int = 0


@dataclass(slots=True, eq=False)
class SnapshotJob:
    """The next rows of a snapshot."""

    route: RouteId
    tx: str
    future: "asyncio.Future[None]"
    size: int = 0


Job = WriteJob | SchemaJob | RouteJob | SnapshotJob | RebuildJob


def size_of(statements: Sequence[Write | Query], params: Sequence[Parameters]) -> int:
    """About how many bytes a request holds. Many rows are judged by a few of them."""
    size = sum(len(statement.text) for statement in statements)
    return size + sum(_size_of(values) for values in params)


def _size_of(values: object) -> int:
    if isinstance(values, (str, bytes)):
        return _PARAMETER_BYTES + len(values)
    if isinstance(values, Mapping):
        values = list(values.values())
    if not isinstance(values, (list, tuple)) or not values:
        return _PARAMETER_BYTES
    step = max(1, len(values) // _SAMPLED_ROWS)
    sample = [_size_of(value) for value in values[::step]]
    return sum(sample) * len(values) // len(sample)
