"""Which records of a topic a query can want, by the conditions of its WHERE: so that the others are not read.

Only conditions of the form `column = constant` and the like count, joined by AND, on the columns that say where a record is:
`partition`, `offset`, `cursor` and `timestamp`. DuckDB still checks every row, so bounds may be too wide and must never be
too narrow. Constants are worked out by DuckDB, in the transaction of the query, so that `now()` means one time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from sqlglot import exp

Place = Literal["partition", "offset", "cursor", "timestamp"]
Side = Literal["low", "high", "one_of"]

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
_SIDES: dict[type[exp.Expr], tuple[Side, ...]] = {
    exp.GT: ("low",),
    exp.GTE: ("low",),
    exp.LT: ("high",),
    exp.LTE: ("high",),
    exp.EQ: ("low", "high"),
}
_CONSTANT_PARTS = (
    exp.Literal,
    exp.Neg,
    exp.Paren,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Interval,
    exp.Var,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.CurrentTimestamp,
    exp.CurrentDate,
)


class Span(NamedTuple):
    """From `low` to `high`, both included; `None` is no bound."""

    low: int | None = None
    high: int | None = None


class Bounds(NamedTuple):
    """Timestamps in milliseconds."""

    partitions: frozenset[int] | None = None
    offsets: Span = Span()
    cursors: Span = Span()
    timestamps: Span = Span()


class Condition(NamedTuple):
    """One side of what a column is compared with. Of `one_of` there is at least one constant."""

    place: Place
    side: Side
    constants: Sequence[exp.Expr]


def conditions(where: exp.Expr, place_of: Callable[[exp.Column], Place | None]) -> Iterator[Condition]:
    """Those that must hold of a row of the source; `place_of` tells which columns are the source's."""
    for term in where.flatten() if isinstance(where, exp.And) else (where,):
        term = term.unnest()
        if isinstance(term, exp.And):
            yield from conditions(term, place_of)
        elif isinstance(term, exp.Between) and not term.args.get("symmetric"):
            yield from _compared(term.this, ("low",), term.args["low"], place_of)
            yield from _compared(term.this, ("high",), term.args["high"], place_of)
        elif isinstance(term, exp.In) and term.expressions and isinstance(term.this, exp.Column):
            place = place_of(term.this)
            if place is not None and all(map(is_constant, term.expressions)):
                yield Condition(place, "one_of", term.expressions)
        elif type(term) in _SIDES:
            if is_constant(term.expression):
                yield from _compared(term.this, _SIDES[type(term)], term.expression, place_of)
            else:
                yield from _compared(term.expression, _SIDES[_FLIPPED[type(term)]], term.this, place_of)


def is_constant(tree: exp.Expr) -> bool:
    """Whether it has the same value for all rows, each time it is asked for."""
    return all(isinstance(node, _CONSTANT_PARTS) for node in tree.walk())


def question(found: Sequence[Condition]) -> str:
    """A query for the values of all constants of these conditions, in one row; null for what has none."""
    asked = [_asked(condition.place, constant) for condition in found for constant in condition.constants]
    return f"SELECT {', '.join(asked)}"


def bounds(found: Sequence[Condition], answers: Sequence[int | None]) -> Bounds:
    """What the conditions say together, with the answers to `question`."""
    left = iter(answers)
    spans: dict[str, Span] = {}
    partitions: frozenset[int] | None = None
    for condition in found:
        values = [next(left) for _ in condition.constants]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        low, high = min(known), max(known)
        if condition.side == "one_of" and condition.place == "partition":
            partitions = frozenset(known) if partitions is None else partitions & frozenset(known)
        spans[condition.place] = _narrowed(
            spans.get(condition.place, Span()),
            low if condition.side in ("low", "one_of") else None,
            high if condition.side in ("high", "one_of") else None,
        )
    return Bounds(
        _within(partitions, spans.get("partition", Span())),
        spans.get("offset", Span()),
        spans.get("cursor", Span()),
        _milliseconds(spans.get("timestamp", Span())),
    )


def _compared(
    column: exp.Expr, sides: Sequence[Side], constant: exp.Expr, place_of: Callable[[exp.Column], Place | None]
) -> Iterator[Condition]:
    place = place_of(column) if isinstance(column, exp.Column) else None
    if place is not None and is_constant(constant):
        for side in sides:
            yield Condition(place, side, (constant,))


def _asked(place: Place, constant: exp.Expr) -> str:
    text = constant.sql(dialect="duckdb")
    return f"TRY(epoch_us(CAST({text} AS TIMESTAMP)))" if place == "timestamp" else f"TRY(CAST({text} AS BIGINT))"


def _narrowed(span: Span, low: int | None, high: int | None) -> Span:
    lows = [bound for bound in (span.low, low) if bound is not None]
    highs = [bound for bound in (span.high, high) if bound is not None]
    return Span(max(lows, default=None), min(highs, default=None))


def _within(partitions: frozenset[int] | None, span: Span) -> frozenset[int] | None:
    """One partition, where that is all a span leaves."""
    if partitions is None and span.low is not None and span.low == span.high:
        return frozenset((span.low,))
    return partitions


def _milliseconds(micros: Span) -> Span:
    return Span(None if micros.low is None else micros.low // 1000, None if micros.high is None else -(-micros.high // 1000))


PLACES: Mapping[str, Place] = {
    "partition": "partition",
    "offset": "offset",
    "cursor": "cursor",
    "timestamp": "timestamp",
}
"""Columns of a topic that say where a record is."""

CHANGE_PLACES: Mapping[str, Place] = {"_commit_version": "cursor", "_commit_timestamp": "timestamp"}
"""The same of the changes of a table."""
