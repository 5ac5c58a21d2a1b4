"""Compiles analyzed expressions to Python callables that take a row.

A row is a sequence: the values of the columns, the parameters of the statement and its time, at the places that a `RowLayout`
tells. Values are those of Python: `bool`, `int`, `float`, `Decimal` with its scale, `str`, `bytes`, `date`, `time`, `datetime`
(aware in UTC for timestamptz, naive for timestamp), `Interval`, `UUID`, lists for arrays, and the text of JSON for json and
jsonb, so that a null inside JSON is not taken for a null of SQL.

Logic has three values, and arguments are evaluated from left to right, where PostgreSQL does so. Subqueries, aggregates and
whatever has no entry in the tables of functions are refused with their place.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.tree import (
    AnyOrAll,
    ArrayItem,
    ArrayOf,
    BooleanTest,
    Call,
    Case,
    Cast,
    Coalesce,
    ColumnReference,
    Constant,
    CurrentTime,
    DistinctTest,
    Element,
    Expression,
    Extreme,
    InList,
    Logical,
    NullIf,
    NullTest,
    Parameter,
    Slice,
)
from tailrace.sql.analysis.types import TEXTS as TEXT_TYPES
from tailrace.sql.evaluation.arrays import ARRAYS, element_at, slice_of
from tailrace.sql.evaluation.casts import cast_function, numeric_fitter
from tailrace.sql.evaluation.comparisons import COMPARISONS, sort_key
from tailrace.sql.evaluation.functions import ByCall, Entry, Function, TakesNulls
from tailrace.sql.evaluation.json import JSON
from tailrace.sql.evaluation.numbers import NUMBERS
from tailrace.sql.evaluation.patterns import PATTERNS
from tailrace.sql.evaluation.texts import TEXTS
from tailrace.sql.evaluation.times import TIMES

Row = Sequence[Any]
Evaluate = Callable[[Row], Any]

FUNCTIONS: dict[str, Entry] = {**COMPARISONS, **NUMBERS, **TEXTS, **PATTERNS, **TIMES, **JSON, **ARRAYS}


class RowLayout(Protocol):
    """Tells where in a row the values are."""

    def column(self, reference: ColumnReference) -> int: ...
    def parameter(self, number: int) -> int: ...
    def now(self) -> int:
        """Return the place of the statement's time, an aware `datetime`."""
        ...


def compile_expression(expression: Expression, layout: RowLayout, *, in_any_order: bool = False) -> Evaluate:
    """Return a callable that evaluates the expression. Raises `UnsupportedError` if a part of it is not supported.

    With `in_any_order`, an operand of AND, OR and IN that fails does not count if another one decides, wherever it stands.
    """
    return _Compiler(layout, in_any_order).compile(expression)


class _Compiler:
    def __init__(self, layout: RowLayout, in_any_order: bool) -> None:
        self._layout = layout
        self._in_any_order = in_any_order
        self._item: list[Any] = []
        """The item of the array that the innermost ANY or ALL is at."""

    def compile(self, node: Expression | None) -> Evaluate:
        method = None if node is None else _METHODS.get(type(node))
        if node is None or method is None:
            name = _REFUSED.get(type(node).__name__, type(node).__name__)
            raise UnsupportedError(f"{name} can't be used here", -1 if node is None else node.location)
        return method(self, node)

    def _all(self, nodes: Sequence[Expression]) -> list[Evaluate]:
        return [self.compile(node) for node in nodes]

    # Leaves

    def _constant(self, node: Constant) -> Evaluate:
        value = node.value
        return lambda row: value

    def _parameter(self, node: Parameter) -> Evaluate:
        at = self._layout.parameter(node.number)
        sql_type = node.type
        if (sql_type.name in TEXT_TYPES and sql_type.length is None) or sql_type.name == "unknown":
            return lambda row: row[at]

        def evaluate(row: Row) -> Any:
            value = row[at]
            return read_text(value, sql_type) if isinstance(value, str) else value

        if sql_type.name == "numeric" and sql_type.precision is not None:
            return _strict(numeric_fitter(sql_type), [evaluate])
        return evaluate

    def _column(self, node: ColumnReference) -> Evaluate:
        at = self._layout.column(node)
        return lambda row: row[at]

    def _current_time(self, node: CurrentTime) -> Evaluate:
        at = self._layout.now()
        convert = _CURRENT_TIMES.get(node.type.name)
        if convert is None:
            return lambda row: row[at]
        return lambda row: convert(row[at])

    # Calls and casts

    def _call(self, node: Call) -> Evaluate:
        if node.signature.key in _TIMES_OF_STATEMENT:
            at = self._layout.now()
            return lambda row: row[at]
        entry = FUNCTIONS.get(node.signature.key)
        if entry is None:
            raise UnsupportedError(f"{shown_call(node)} is not supported here", node.location)
        is_strict = True
        function: Function
        if isinstance(entry, ByCall):
            function, is_strict = entry.make(node), entry.is_strict
        elif isinstance(entry, TakesNulls):
            function, is_strict = entry.function, False
        else:
            function = entry
        arguments = self._all(node.arguments)
        return _strict(function, arguments) if is_strict else _called(function, arguments)

    def _cast(self, node: Cast) -> Evaluate:
        function = cast_function(node.argument.type, node.type, is_explicit=node.is_explicit)
        argument = self.compile(node.argument)
        if function is None:
            raise UnsupportedError(f"a cast from {node.argument.type} to {node.type} is not supported here", node.location)
        return _strict(function, [argument])

    # Logic

    def _logical(self, node: Logical) -> Evaluate:
        arguments = self._all(node.arguments)
        if node.operator == "not":
            (argument,) = arguments
            return lambda row: None if (value := argument(row)) is None else not value
        decisive = node.operator == "or"
        if self._in_any_order:
            return _decided(arguments, decisive=decisive)

        def evaluate(row: Row) -> Any:
            result: bool | None = not decisive
            for argument in arguments:
                value = argument(row)
                if value is decisive:
                    return decisive
                if value is None:
                    result = None
            return result

        return evaluate

    def _null_test(self, node: NullTest) -> Evaluate:
        argument = self.compile(node.argument)
        if node.is_negated:
            return lambda row: argument(row) is not None
        return lambda row: argument(row) is None

    def _boolean_test(self, node: BooleanTest) -> Evaluate:
        argument = self.compile(node.argument)
        wanted, is_negated = node.wanted, node.is_negated
        return lambda row: (argument(row) is wanted) is not is_negated

    def _distinct_test(self, node: DistinctTest) -> Evaluate:
        if node.left is None or node.right is None:
            raise UnsupportedError("this comparison is not supported", node.location)
        left, right = self.compile(node.left), self.compile(node.right)
        left_key, right_key = sort_key(node.left.type), sort_key(node.right.type)
        is_negated = node.is_negated

        def evaluate(row: Row) -> bool:
            one, two = left(row), right(row)
            if one is None or two is None:
                return (one is two) is is_negated
            return bool(left_key(one) == right_key(two)) is is_negated

        return evaluate

    def _case(self, node: Case) -> Evaluate:
        branches = [(self.compile(when), self.compile(then)) for when, then in node.branches]
        otherwise = self.compile(node.otherwise) if node.otherwise is not None else None

        def evaluate(row: Row) -> Any:
            for when, then in branches:
                if when(row):
                    return then(row)
            return None if otherwise is None else otherwise(row)

        return evaluate

    def _coalesce(self, node: Coalesce) -> Evaluate:
        arguments = self._all(node.arguments)

        def evaluate(row: Row) -> Any:
            for argument in arguments:
                value = argument(row)
                if value is not None:
                    return value
            return None

        return evaluate

    def _extreme(self, node: Extreme) -> Evaluate:
        arguments = self._all(node.arguments)
        key = sort_key(node.type)
        choose = max if node.is_greatest else min

        def evaluate(row: Row) -> Any:
            values = [value for argument in arguments if (value := argument(row)) is not None]
            return choose(values, key=key) if values else None

        return evaluate

    def _null_if(self, node: NullIf) -> Evaluate:
        left, equal = self.compile(node.left), self.compile(node.equal)
        return lambda row: None if equal(row) else left(row)

    def _in_list(self, node: InList) -> Evaluate:
        comparisons = self._all(node.comparisons)
        is_negated = node.is_negated
        if self._in_any_order:
            found = _decided(comparisons, decisive=True)
            return (lambda row: None if (value := found(row)) is None else not value) if is_negated else found

        def evaluate(row: Row) -> bool | None:
            result: bool | None = is_negated
            for comparison in comparisons:
                found = comparison(row)
                if found:
                    return not is_negated
                if found is None:
                    result = None
            return result

        return evaluate

    # Arrays

    def _array_of(self, node: ArrayOf) -> Evaluate:
        items = self._all(node.items)
        return lambda row: [item(row) for item in items]

    def _element(self, node: Element) -> Evaluate:
        return _strict(element_at, [self.compile(node.array), self.compile(node.index)])

    def _slice(self, node: Slice) -> Evaluate:
        array = self.compile(node.array)
        bounds = [None if one is None else self.compile(one) for one in (node.lower, node.upper)]

        def evaluate(row: Row) -> list[Any] | None:
            items = array(row)
            lower = 1 if bounds[0] is None else bounds[0](row)
            upper = None if bounds[1] is None else bounds[1](row)
            if items is None or lower is None or (bounds[1] is not None and upper is None):
                return None
            return slice_of(items, lower, len(items) if upper is None else upper)

        return evaluate

    def _any_or_all(self, node: AnyOrAll) -> Evaluate:
        left, array = self.compile(node.left), self.compile(node.array)
        outer = self._item
        cell: list[Any] = [None]
        self._item = cell
        try:
            comparison = self.compile(node.comparison)
        finally:
            self._item = outer
        decisive = not node.is_all

        def evaluate(row: Row) -> Any:
            items = array(row)
            if items is None:
                return None
            if not items:
                # An error of the left side is one even if it is compared with nothing.
                left(row)
            result: bool | None = not decisive
            for item in items:
                cell[0] = item
                found = comparison(row)
                if found is decisive:
                    return decisive
                if found is None:
                    result = None
            return result

        return evaluate

    def _array_item(self, node: ArrayItem) -> Evaluate:
        cell = self._item
        return lambda row: cell[0]


def _decided(arguments: Sequence[Evaluate], *, decisive: bool) -> Evaluate:
    """Return AND or OR of arguments, of which one that fails counts only if no other decides."""

    def evaluate(row: Row) -> Any:
        result: bool | None = not decisive
        failure: AnalysisError | None = None
        for argument in arguments:
            try:
                value = argument(row)
            except AnalysisError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is None:
                result = None
        if failure is not None:
            raise failure
        return result

    return evaluate


def _strict(function: Function, arguments: Sequence[Evaluate]) -> Evaluate:
    """Return a call whose result is null if an argument is. All arguments are evaluated before that is known."""
    if len(arguments) == 1:
        (only,) = arguments
        return lambda row: None if (value := only(row)) is None else function(value)
    if len(arguments) == 2:
        left, right = arguments

        def evaluate_two(row: Row) -> Any:
            one, two = left(row), right(row)
            return None if one is None or two is None else function(one, two)

        return evaluate_two

    def evaluate(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        for value in values:
            if value is None:
                return None
        return function(*values)

    return evaluate


def _called(function: Function, arguments: Sequence[Evaluate]) -> Evaluate:
    return lambda row: function(*[argument(row) for argument in arguments])


def shown_call(node: Call) -> str:
    """Return a call as an error message shows it."""
    name = node.signature.name
    types = [str(one.type) for one in node.arguments]
    if name.isidentifier():
        return f"the function {name}({', '.join(types)})"
    return f"the operator {types[0]} {name} {types[1]}" if len(types) == 2 else f"the operator {name} {types[0]}"


_TIMES_OF_STATEMENT = frozenset(("now()", "transaction_timestamp()", "statement_timestamp()"))
_CURRENT_TIMES: dict[str, Callable[[datetime], object]] = {
    "date": lambda now: now.astimezone(UTC).date(),
    "time": lambda now: now.astimezone(UTC).time(),
    "timestamp": lambda now: now.astimezone(UTC).replace(tzinfo=None),
}
_REFUSED = {
    "Subquery": "a subquery",
    "Aggregate": "an aggregate function",
    "WindowCall": "a window function",
    "GroupingOf": "GROUPING",
}
_METHODS: dict[type[Expression], Callable[[_Compiler, Any], Evaluate]] = {
    Constant: _Compiler._constant,
    Parameter: _Compiler._parameter,
    ColumnReference: _Compiler._column,
    CurrentTime: _Compiler._current_time,
    Call: _Compiler._call,
    Cast: _Compiler._cast,
    Logical: _Compiler._logical,
    NullTest: _Compiler._null_test,
    BooleanTest: _Compiler._boolean_test,
    DistinctTest: _Compiler._distinct_test,
    Case: _Compiler._case,
    Coalesce: _Compiler._coalesce,
    Extreme: _Compiler._extreme,
    NullIf: _Compiler._null_if,
    InList: _Compiler._in_list,
    ArrayOf: _Compiler._array_of,
    Element: _Compiler._element,
    Slice: _Compiler._slice,
    AnyOrAll: _Compiler._any_or_all,
    ArrayItem: _Compiler._array_item,
}
