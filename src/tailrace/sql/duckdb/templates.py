"""Templates: how a call of PostgreSQL's catalog is written in DuckDB's SQL.

A template has the arguments as `{0}`, `{1}`; a function of Python makes the text where it depends on more than that. What is
not listed is refused. The files of `macros/` and `python_functions.py` define what DuckDB does not have or does otherwise. Each
entry is held equal to a real PostgreSQL by the differential test.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Aggregate, Call
from tailrace.sql.analysis.types import SqlType, digits_of
from tailrace.sql.duckdb.repeated_arguments import is_volatile

MAX_PRECISION = 38
"""The digits of DuckDB's largest decimal."""
Template = str | Callable[[Sequence[str], Call], str]
Entry = TypeVar("Entry")

_GROUPS = {
    "int": ("int2", "int4", "int8"),
    "float": ("float4", "float8"),
    "string": ("text", "varchar", "bpchar"),
    "moment": ("date", "timestamp", "timestamptz"),
    "plain": ("bool", "text", "bytea", "uuid", "date", "time", "timestamp", "timestamptz", "interval"),
    "any": ("anyelement", "anyarray", "anynonarray", "anycompatible", "anycompatiblearray"),
}


def expanded(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries with a key for each type of a group: `{int} + {int}` stands for nine."""
    result: dict[str, Entry] = {}
    for key, template in entries.items():
        for one in _expansions(key):
            result.setdefault(one, template)
    return result


def _expansions(key: str) -> Iterator[str]:
    pieces = key.replace("}", "{").split("{")
    names = pieces[1::2]
    for chosen in product(*(_GROUPS[name] for name in names)):
        filled = list(pieces)
        filled[1::2] = chosen
        yield "".join(filled)


def is_loose(sql_type: SqlType) -> bool:
    """Return whether a numeric is held as text, because its scale depends on its values."""
    digits = digits_of(sql_type)
    return sql_type.name == "numeric" and (digits is None or digits[0] > MAX_PRECISION)


def decimal_text(text: str, sql_type: SqlType) -> str:
    """Return the text of a numeric, which DuckDB writes without a zero before the point if no digit can stand there."""
    if is_loose(sql_type):
        return text
    printed = f"CAST({text} AS VARCHAR)"
    return f"with_zero({printed})" if sql_type.precision == sql_type.scale else printed


def only_where(condition: str | None, text: str) -> str:
    """Return a text that is evaluated only where a condition is true, if it has the same value each time."""
    return text if condition is None or is_volatile(condition) else f"(CASE WHEN {condition} THEN {text} END)"


class AggregateCall:
    """An aggregate that is to be written: `call('sum')` is the call of DuckDB's function with all clauses."""

    def __init__(
        self,
        node: Aggregate,
        arguments: Sequence[str],
        order: Sequence[str],
        within: Sequence[str],
        condition: str | None,
        over: str,
        sorted_values: Sequence[str] = (),
        is_short_frame: bool = False,
    ) -> None:
        self.node = node
        self.arguments = arguments
        self.within = within
        self.sorted_values = sorted_values
        """What `within` sorts by."""
        self.is_short_frame = is_short_frame
        """Whether it is computed over frames of few rows."""
        self._order = order
        self._condition = condition
        self._over = over

    def __call__(self, name: str, *arguments: str, ordered: bool = False, sorted_by: Sequence[str] = ()) -> str:
        if self.node.is_distinct and any(is_loose(one.type) for one in self.node.arguments):
            raise UnsupportedError("DISTINCT of numerics without a fixed scale is not supported", self.node.location)
        order = self._order if ordered and self._order else sorted_by
        return self._written(name, arguments, is_distinct=self.node.is_distinct, order=order)

    def only_kept(self, text: str) -> str:
        """Return a text that is evaluated only on the rows that FILTER keeps. DuckDB would also fail on the others."""
        return only_where(self._condition, text)

    def of_keys(self, name: str, *keys: str) -> str:
        """Return a call with keys of the arguments, which are distinct where the values are."""
        return self._written(name, keys, is_distinct=self.node.is_distinct)

    def of_all(self, name: str, *arguments: str) -> str:
        """Return a call without DISTINCT."""
        return self._written(name, arguments, is_distinct=False)

    def of_sorted(self, name: str) -> str:
        """Return a call with the values of WITHIN GROUP, in its order."""
        return self._written(name, [f"{self.sorted_values[0]} ORDER BY {self.within[0]}"], is_distinct=False)

    def _written(self, name: str, arguments: Sequence[str], *, is_distinct: bool, order: Sequence[str] = ()) -> str:
        given = ", ".join(arguments or self.arguments)
        distinct = "DISTINCT " if is_distinct else ""
        sorting = f" ORDER BY {', '.join(order)}" if order else ""
        condition = f" FILTER (WHERE {self._condition})" if self._condition is not None else ""
        return f"{name}({distinct}{given}{sorting}){condition}{self._over}"


AggregateTemplate = Callable[[AggregateCall], str]


class RowFunction(NamedTuple):
    """A function that returns rows: the text of a list, of structs with `c1`, `c2` and so on where it has several columns."""

    template: Template
    columns: int = 1

    def render(self, arguments: Sequence[str], call: Call) -> str:
        return self.template(arguments, call) if callable(self.template) else self.template.format(*arguments)
