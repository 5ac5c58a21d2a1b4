"""Analyzes expressions: resolves names, functions and operators, and writes out every cast, as PostgreSQL does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tailrace.model.suggestions import did_you_mean
from tailrace.sql.analysis.catalog import AmbiguousCallError, CastContext, Resolved, catalog, is_polymorphic
from tailrace.sql.analysis.datetime_texts import CURRENT_WORDS
from tailrace.sql.analysis.errors import (
    AMBIGUOUS_FUNCTION,
    CANNOT_COERCE,
    DATATYPE_MISMATCH,
    GROUPING_ERROR,
    SYNTAX_ERROR,
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    WINDOWING_ERROR,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.interval_texts import FULL_RANGE, IntervalRange, read_interval
from tailrace.sql.analysis.json_syntax import is_json, json_array, json_object, json_scalar, json_subscript
from tailrace.sql.analysis.numeric_digits import digits_of_aggregate, digits_of_call
from tailrace.sql.analysis.scope import Scope, ScopeRelation
from tailrace.sql.analysis.tree import (
    Aggregate,
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
    GroupingOf,
    InList,
    Logical,
    NullIf,
    NullTest,
    Parameter,
    Slice,
    SortKey,
    Subquery,
    WindowCall,
    WindowFrame,
)
from tailrace.sql.analysis.types import (
    BOOL,
    DATE,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
    digits_of,
)

if TYPE_CHECKING:
    from tailrace.sql.analysis.queries import QueryAnalyzer

Node = Mapping[str, Any]
"""A node of PostgreSQL's parse tree: its fields under the name of its kind."""

_SCHEMAS = ("pg_catalog", "public")
_TYPE_NAMES = {"decimal": "numeric", "string": "text", "bytes": "bytea", "blob": "bytea", "double": "float8"}
_JSON_OPERATORS = frozenset(("->", "->>", "#>", "#>>"))
_ROW_FUNCTIONS = frozenset(("to_jsonb", "to_json", "row_to_json"))
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_MAX_NUMERIC_PRECISION = 1000
_MAX_INTEGER_DIGITS = 100
_MAX_LENGTH = 10_485_760
"""That of varchar(n) and char(n)."""
_TYPES_WITH_DIGITS = ("timestamp", "timestamptz", "time")
_MAX_TIME_DIGITS = 6
_CURRENT_TIMES = frozenset(("now()", "transaction_timestamp()", "statement_timestamp()", "clock_timestamp()"))
_ARGUMENT_NAMES = {
    "make_date": ("year", "month", "day"),
    "make_time": ("hour", "min", "sec"),
    "make_timestamp": ("year", "month", "mday", "hour", "min", "sec"),
    "make_timestamptz": ("year", "month", "mday", "hour", "min", "sec", "timezone"),
    "make_interval": ("years", "months", "weeks", "days", "hours", "mins", "secs"),
}
"""The functions whose arguments can be given by name."""


class ExpressionAnalyzer:
    """Analyzes the expressions of one statement."""

    def __init__(self, parameter_types: Sequence[SqlType], queries: "QueryAnalyzer | None" = None) -> None:
        self._parameter_types = parameter_types
        self._queries = queries
        self._catalog = catalog()

    def analyze(self, node: Node, scope: Scope) -> Expression:
        """Return the expression of a parse tree."""
        ((kind, fields),) = node.items()
        method = _METHODS.get(kind)
        if method is None:
            raise UnsupportedError(f"{kind} is not supported", _location(fields))
        return method(self, fields, scope)

    def condition(self, node: Node, scope: Scope, clause: str) -> Expression:
        """Return an expression that must be a boolean."""
        found = self.analyze(node, scope)
        return self.as_boolean(found, clause)

    def as_boolean(self, found: Expression, clause: str) -> Expression:
        if found.type.name not in ("bool", "unknown"):
            raise AnalysisError(
                DATATYPE_MISMATCH, f"argument of {clause} must be type boolean, not type {found.type}", found.location
            )
        return self.coerce(found, BOOL)

    def analyze_all(self, nodes: Iterable[Node], scope: Scope) -> list[Expression]:
        return [self.analyze(node, scope) for node in nodes]

    def settle(self, found: Expression) -> Expression:
        """Return the expression as text if nothing has decided its type."""
        return self.coerce(found, TEXT) if found.type == UNKNOWN else found

    def coerce(
        self, found: Expression, target: SqlType, context: CastContext = "implicit", location: int | None = None
    ) -> Expression:
        """Return the expression as one of another type. Raises `AnalysisError` if this context does not allow it."""
        at = found.location if location is None else location
        if found.type == target or (found.type.name == target.name and target == target.plain):
            return found
        if isinstance(found, Constant) and found.type == UNKNOWN:
            return self._constant(found, target)
        if isinstance(found, Parameter) and found.type == UNKNOWN:
            return Parameter(target, found.number, location=found.location)
        if not self._catalog.can_cast(found.type.name, target.name, context):
            raise AnalysisError(
                CANNOT_COERCE if context == "explicit" else DATATYPE_MISMATCH,
                f"cannot cast type {found.type} to {target}",
                at,
            )
        if target.name == "numeric" and target.precision is None:
            digits = digits_of(found.type)
            if digits is not None:
                target = SqlType("numeric", *digits)
        if isinstance(found, ArrayOf) and target.is_array:
            return ArrayOf(target, [self.coerce(item, target.element, context) for item in found.items], location=at)
        return Cast(target, found, is_explicit=context == "explicit", location=at)

    def _constant(self, found: Constant, target: SqlType) -> Expression:
        if found.value is None:
            return Constant(target, None, location=found.location)
        word = str(found.value).strip().lower()
        if word in CURRENT_WORDS and target.name in ("date", "timestamp", "timestamptz"):
            return self._current(word, target, found.location)
        try:
            value = read_text(str(found.value), target.plain if target.name == "numeric" else target)
        except AnalysisError as error:
            error.location = found.location if error.location < 0 else error.location
            raise
        constant = Constant(_typed(target, value), value, location=found.location)
        return (
            self.coerce(constant, target, "explicit") if target.name == "numeric" and target.precision is not None else constant
        )

    def _current(self, word: str, target: SqlType, location: int) -> Expression:
        """Return the value of `'now'`, `'today'` and the like."""
        if word == "now":
            return CurrentTime(target, location=location)
        today: Expression = CurrentTime(DATE, location=location)
        if word != "today":
            today = self.operator("+" if word == "tomorrow" else "-", [today, Constant(INT4, 1)], location)
        return self.coerce(today, target)

    def common(self, found: Sequence[Expression], what: str, location: int = -1) -> tuple[SqlType, list[Expression]]:
        """Return the common type of expressions, and the expressions as ones of it."""
        name = self._catalog.common_type([one.type.name for one in found])
        if name is None:
            types = [one.type for one in found if one.type != UNKNOWN]
            other = next(one for one in types if one.name != types[0].name)
            raise AnalysisError(DATATYPE_MISMATCH, f"{what} types {types[0]} and {other} cannot be matched", location)
        target = SqlType(name)
        coerced = [self.coerce(one, target) for one in found]
        if name == "numeric":
            target = _common_digits(coerced)
            coerced = [_with_digits(one, target) for one in coerced]
        elif len({one.type for one in coerced}) == 1:
            target = coerced[0].type
        return target, coerced

    def operator(self, name: str, operands: Sequence[Expression], location: int) -> Expression:
        """Return the call of an operator."""
        name = "<>" if name == "!=" else name
        if name in ("@?", "@@"):
            raise UnsupportedError(f"the operator {name} is not supported; use -> and @>", location)
        if name in _JSON_OPERATORS and _is_json_text(operands[0]):
            operands = [_as_json(operands[0]), *operands[1:]]
        types = [one.type for one in operands]
        try:
            found = self._catalog.find_operator(name, types)
        except AmbiguousCallError:
            shown = _shown_operator(name, types)
            raise AnalysisError(AMBIGUOUS_FUNCTION, f"operator is not unique: {shown}", location) from None
        if found is None:
            shown = _shown_operator(name, types)
            raise AnalysisError(UNDEFINED_FUNCTION, f"operator does not exist: {shown}", location)
        return self._called(found, operands, location)

    def call(self, name: str, arguments: Sequence[Expression], location: int) -> Call:
        """Return the call of a function of the catalog."""
        return self._called(self._find(name, arguments, {}, location), arguments, location)

    def _called(self, found: Resolved, arguments: Sequence[Expression], location: int) -> Call:
        if found.signature.name == "pg_typeof":
            return Call(SqlType(found.result), found.signature, arguments, location=location)
        coerced, result = self._with_common_digits(found, self._coerced(found, arguments))
        result = digits_of_call(found.signature.key, result, coerced)
        return Call(result, found.signature, coerced, location=location)

    def _coerced(self, found: Resolved, arguments: Sequence[Expression]) -> list[Expression]:
        return [self.coerce(one, SqlType(name)) for one, name in zip(arguments, found.arguments, strict=True)]

    def _with_common_digits(self, found: Resolved, arguments: list[Expression]) -> tuple[list[Expression], SqlType]:
        """Return the arguments of a call and the type of its result, in which all numerics of a polymorphic type are alike."""
        result = SqlType(found.result)
        places = [
            at
            for at, (name, one) in enumerate(zip(found.signature.arguments, arguments, strict=True))
            if is_polymorphic(name) and one.type.name in ("numeric", "numeric[]")
        ]
        if not places:
            return arguments, result
        target = _common_digits([arguments[at] for at in places])
        for at in places:
            arguments[at] = _with_digits(arguments[at], target.array if arguments[at].type.is_array else target)
        if is_polymorphic(found.signature.result):
            result = target.array if result.is_array else target
        return arguments, result

    # Constants and names

    def _literal(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        if fields.get("isnull"):
            return Constant(UNKNOWN, None, location=location)
        if "ival" in fields:
            return Constant(INT4, fields["ival"].get("ival", 0), location=location)
        if "boolval" in fields:
            return Constant(BOOL, fields["boolval"].get("boolval", False), location=location)
        if "fval" in fields:
            return _number(fields["fval"]["fval"], location)
        if "bsval" in fields:
            raise UnsupportedError("bit strings are not supported; write bytes as '\\x0aff'::bytea", location)
        return Constant(UNKNOWN, fields["sval"].get("sval", ""), location=location)

    def _column(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        parts = fields["fields"]
        if "A_Star" in parts[-1]:
            raise AnalysisError(SYNTAX_ERROR, "* is not allowed here", location)
        names = [part["String"]["sval"] for part in parts]
        return scope.find(names[-1], ".".join(names[:-1]) or None, location)

    def _parameter(self, fields: Node, scope: Scope) -> Expression:
        number = fields.get("number", 0)
        location = _location(fields)
        if not 1 <= number <= len(self._parameter_types):
            raise AnalysisError("42P02", f"there is no parameter ${number}", location)
        return Parameter(self._parameter_types[number - 1], number, location=location)

    # Operators

    def _expression(self, fields: Node, scope: Scope) -> Expression:
        kind = fields["kind"]
        location = _location(fields)
        name = fields["name"][-1]["String"]["sval"]
        if kind in ("AEXPR_IN",):
            return self._in_list(fields, scope, is_negated=name == "<>")
        if kind in ("AEXPR_BETWEEN", "AEXPR_NOT_BETWEEN", "AEXPR_BETWEEN_SYM", "AEXPR_NOT_BETWEEN_SYM"):
            return self._between(fields, scope)
        if kind in ("AEXPR_OP_ANY", "AEXPR_OP_ALL"):
            return self._any_or_all(fields, scope, name, is_all=kind == "AEXPR_OP_ALL")
        if "RowExpr" in fields.get("lexpr", ()) and "RowExpr" in fields["rexpr"]:
            return self._rows_compared(name, kind, fields, scope, location)
        right = self.analyze(fields["rexpr"], scope)
        if "lexpr" not in fields:
            return self._unary(name, right, location)
        left = self.analyze(fields["lexpr"], scope)
        if kind in ("AEXPR_DISTINCT", "AEXPR_NOT_DISTINCT"):
            return self._distinct((left, right), kind == "AEXPR_NOT_DISTINCT", location)
        if kind == "AEXPR_NULLIF":
            equal = self.operator("=", [left, right], location)
            kept = _operands(equal)[0]
            return NullIf(kept.type, kept, right, equal, location=location)
        return self.operator(name, [left, right], location)

    def _rows_compared(self, name: str, kind: str, fields: Node, scope: Scope, location: int) -> Expression:
        lefts = self.analyze_all(fields["lexpr"]["RowExpr"].get("args", ()), scope)
        rights = self.analyze_all(fields["rexpr"]["RowExpr"].get("args", ()), scope)
        if len(lefts) != len(rights):
            raise AnalysisError(SYNTAX_ERROR, "unequal number of entries in row expressions", location)
        if kind in ("AEXPR_DISTINCT", "AEXPR_NOT_DISTINCT"):
            is_same = kind == "AEXPR_NOT_DISTINCT"
            tests = [self._distinct(pair, is_same, location) for pair in zip(lefts, rights, strict=True)]
            return Logical(BOOL, "and" if is_same else "or", tests, location=location)
        return self.row_comparison(name, lefts, rights, location)

    def _distinct(self, pair: tuple[Expression, Expression], is_negated: bool, location: int) -> Expression:
        left, right = _operands(self.operator("=", pair, location))
        return DistinctTest(BOOL, left, right, is_negated, location=location)

    def row_comparison(self, name: str, lefts: Sequence[Expression], rights: Sequence[Expression], location: int) -> Expression:
        """Return the comparison of two rows, item by item."""
        pairs = list(zip(lefts, rights, strict=True))
        if len(pairs) == 1:
            return self.operator(name, pairs[0], location)
        if name in ("=", "<>"):
            parts = [self.operator(name, pair, location) for pair in pairs]
            return Logical(BOOL, "and" if name == "=" else "or", parts, location=location)
        if name not in _COMPARISONS:
            raise UnsupportedError(f"rows can't be compared by {name}", location)
        strict = name[0]
        result = self.operator(name, pairs[-1], location)
        for pair in reversed(pairs[:-1]):
            equal = self.operator("=", pair, location)
            result = Logical(
                BOOL, "or", [self.operator(strict, pair, location), Logical(BOOL, "and", [equal, result])], location=location
            )
        return result

    def _unary(self, name: str, operand: Expression, location: int) -> Expression:
        if name == "-" and isinstance(operand, Constant) and isinstance(operand.value, Decimal):
            value = operand.value
            return Constant(operand.type, value.copy_negate() if value and not value.is_nan() else value, location=location)
        return self.operator(name, [operand], location)

    def _in_list(self, fields: Node, scope: Scope, *, is_negated: bool) -> Expression:
        location = _location(fields)
        nodes = fields["rexpr"]["List"]["items"]
        if "RowExpr" in fields["lexpr"]:
            lefts = self.analyze_all(fields["lexpr"]["RowExpr"].get("args", ()), scope)
            raws = [item["RowExpr"].get("args", ()) for item in nodes if "RowExpr" in item]
            if len(raws) != len(nodes):
                raise UnsupportedError("IN compares a row with rows", location)
            compared = [self.row_comparison("=", lefts, self.analyze_all(raw, scope), location) for raw in raws]
            return InList(BOOL, compared, is_negated, location=location)
        items = self.analyze_all(nodes, scope)
        left = self.analyze(fields["lexpr"], scope)
        # Constants are compared as ones of a common type, as PostgreSQL does.
        constants = [one for one in items if not any(isinstance(part, ColumnReference) for part in one.walk())]
        name = (
            self._catalog.common_type([left.type.name, *(one.type.name for one in constants)]) if len(constants) > 1 else None
        )
        if name is not None:
            target = SqlType(name)
            items = [self.coerce(one, target) if one in constants else one for one in items]
        return InList(BOOL, [self.operator("=", [left, item], location) for item in items], is_negated, location=location)

    def _between(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        kind = fields["kind"]
        value = self.analyze(fields["lexpr"], scope)
        low, high = self.analyze_all(fields["rexpr"]["List"]["items"], scope)

        def within(lower: Expression, upper: Expression) -> Expression:
            above = self.operator(">=", [value, lower], location)
            below = self.operator("<=", [value, upper], location)
            return Logical(BOOL, "and", [above, below], location=location)

        result = within(low, high)
        if "_SYM" in kind:
            result = Logical(BOOL, "or", [result, within(high, low)], location=location)
        return Logical(BOOL, "not", [result], location=location) if "NOT" in kind else result

    def _any_or_all(self, fields: Node, scope: Scope, name: str, *, is_all: bool) -> Expression:
        location = _location(fields)
        left = self.analyze(fields["lexpr"], scope)
        array = self.analyze(fields["rexpr"], scope)
        if array.type == UNKNOWN:
            element = TEXT if left.type == UNKNOWN else left.type.plain
            array = self.coerce(array, element.array)
        if not array.type.is_array:
            raise AnalysisError("42809", "op ANY/ALL (array) requires array on right side", location)
        item = ArrayItem(array.type.element)
        comparison = self.operator(name, [left, item], location)
        if comparison.type != BOOL:
            raise AnalysisError("42809", "op ANY/ALL (array) requires operator to yield boolean", location)
        return AnyOrAll(BOOL, left, array, comparison, is_all, location=location)

    # Logic

    def _logical(self, fields: Node, scope: Scope) -> Expression:
        operator = {"AND_EXPR": "and", "OR_EXPR": "or", "NOT_EXPR": "not"}[fields["boolop"]]
        arguments = [self.condition(node, scope, operator.upper()) for node in fields["args"]]
        return Logical(BOOL, operator, arguments, location=_location(fields))  # type: ignore[arg-type]

    def _null_test(self, fields: Node, scope: Scope) -> Expression:
        is_negated = fields["nulltesttype"] == "IS_NOT_NULL"
        if "RowExpr" in fields["arg"]:
            parts = self.analyze_all(fields["arg"]["RowExpr"].get("args", ()), scope)
            tests = [NullTest(BOOL, self.settle(part), is_negated) for part in parts]
            return Logical(BOOL, "and", tests, location=_location(fields))
        return NullTest(BOOL, self.settle(self.analyze(fields["arg"], scope)), is_negated, location=_location(fields))

    def _boolean_test(self, fields: Node, scope: Scope) -> Expression:
        name = fields["booltesttype"]
        wanted = {"TRUE": True, "FALSE": False, "UNKNOWN": None}[name.rpartition("_")[2]]
        argument = self.condition(fields["arg"], scope, name.replace("_", " "))
        return BooleanTest(BOOL, argument, wanted, "NOT" in name, location=_location(fields))

    def _case(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        subject = self.analyze(fields["arg"], scope) if "arg" in fields else None
        if subject is not None:
            subject = self.settle(subject)
        conditions = []
        results = []
        for branch in fields["args"]:
            when = branch["CaseWhen"]
            if subject is None:
                conditions.append(self.condition(when["expr"], scope, "CASE/WHEN"))
            else:
                conditions.append(self.operator("=", [subject, self.analyze(when["expr"], scope)], location))
            results.append(self.analyze(when["result"], scope))
        otherwise = self.analyze(fields["defresult"], scope) if "defresult" in fields else Constant(UNKNOWN, None)
        # PostgreSQL looks at ELSE first.
        target, coerced = self.common([otherwise, *results], "CASE", location)
        return Case(target, list(zip(conditions, coerced[1:], strict=True)), coerced[0], location=location)

    def _coalesce(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        target, coerced = self.common(self.analyze_all(fields["args"], scope), "COALESCE", location)
        return Coalesce(target, coerced, location=location)

    def _extreme(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        is_greatest = fields["op"] == "IS_GREATEST"
        name = "GREATEST" if is_greatest else "LEAST"
        target, coerced = self.common(self.analyze_all(fields["args"], scope), name, location)
        return Extreme(target, coerced, is_greatest, location=location)

    # Casts

    def _cast(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        target = self.type_of(fields["typeName"])
        if target.name in (*_TYPES_WITH_DIGITS, "interval") and target != target.plain:
            return self._cast_to_precision(self.analyze(fields["arg"], scope), target, location)
        if "A_ArrayExpr" in fields["arg"] and target.is_array:
            array = fields["arg"]["A_ArrayExpr"]
            items = [self.coerce(self.analyze(node, scope), target.element, "explicit") for node in array.get("elements", ())]
            return ArrayOf(target, items, location=location)
        argument = self.analyze(fields["arg"], scope)
        if argument.type.name == target.name and target == target.plain:
            return argument
        if isinstance(argument, Constant) and argument.type == UNKNOWN:
            return self._cast_text(argument, target)
        if _is_json_text(argument) and target.name in ("json", "jsonb"):
            return Cast(target, argument, is_explicit=True, location=location)
        return self.coerce(argument, target, "explicit", location)

    def _cast_text(self, argument: Constant, target: SqlType) -> Expression:
        """A text that is cast to varchar(n) is cut, and one that is cast to char(n) is cut or padded."""
        if target.name in ("varchar", "bpchar") and target.length is not None and argument.value is not None:
            cut = str(argument.value)[: target.length]
            return Constant(target, cut.ljust(target.length) if target.name == "bpchar" else cut, location=argument.location)
        return self.coerce(argument, target, "explicit")

    def _cast_to_precision(self, argument: Expression, target: SqlType, location: int) -> Expression:
        """Return a value of fewer digits or units, such as `timestamp(0)` or `interval day`, by the function that rounds it."""
        if target.name == "interval":
            units = IntervalRange(target.length or FULL_RANGE, target.precision)
            if isinstance(argument, Constant) and argument.type == UNKNOWN and argument.value is not None:
                return Constant(INTERVAL, read_interval(str(argument.value), units), location=location)
            modifier = (units.units << 16) | (0xFFFF if units.digits is None else units.digits)
        else:
            modifier = target.precision or 0
        value = self.coerce(argument, target.plain, "explicit", location)
        found = self._catalog.find_function(target.name, [target.plain, INT4])
        if found is None:
            raise UnsupportedError(f"a precision of {target} is not supported", location)
        return self._called(found, [value, Constant(INT4, modifier)], location)

    def type_of(self, fields: Node) -> SqlType:
        """Return the type that a statement names."""
        location = _location(fields)
        names = [part["String"]["sval"] for part in fields["names"]]
        name = _TYPE_NAMES.get(names[-1], names[-1])
        if (
            (len(names) > 1 and names[0] not in _SCHEMAS)
            or not self._catalog.has_type(name)
            or self._catalog.category(name) == "P"
        ):
            hint = did_you_mean(
                names[-1], ["integer", "bigint", "text", "boolean", "numeric", "timestamptz", "jsonb", "double"]
            )
            raise AnalysisError(UNDEFINED_OBJECT, f'type "{".".join(names)}" does not exist{hint}', location)
        modifiers = [_modifier(node) for node in fields.get("typmods", ())]
        result = self._with_modifiers(name, modifiers, location)
        dimensions = fields.get("arrayBounds", ())
        if len(dimensions) > 1:
            raise UnsupportedError("arrays of more than one dimension are not supported", location)
        return result.array if dimensions else result

    def _with_modifiers(self, name: str, modifiers: Sequence[int | None], location: int) -> SqlType:
        if name == "numeric" and modifiers:
            precision, scale = modifiers[0], modifiers[1] if len(modifiers) > 1 else 0
            if precision is None or scale is None or not 1 <= precision <= _MAX_NUMERIC_PRECISION:
                raise AnalysisError("22023", f"NUMERIC precision {precision} must be between 1 and 1000", location)
            if not -_MAX_NUMERIC_PRECISION <= scale <= _MAX_NUMERIC_PRECISION:
                raise AnalysisError("22023", f"NUMERIC scale {scale} must be between -1000 and 1000", location)
            return SqlType("numeric", precision, scale)
        if name in ("varchar", "bpchar"):
            shown = "varchar" if name == "varchar" else "char"
            if modifiers and (modifiers[0] is None or modifiers[0] < 1):
                raise AnalysisError("22023", f"length for type {shown} must be at least 1", location)
            if modifiers and modifiers[0] is not None and modifiers[0] > _MAX_LENGTH:
                raise AnalysisError("22023", f"length for type {shown} cannot exceed {_MAX_LENGTH}", location)
            return SqlType(name, length=modifiers[0] if modifiers else (1 if name == "bpchar" else None))
        if name == "interval" and modifiers:
            return SqlType(name, modifiers[1] if len(modifiers) > 1 else None, length=modifiers[0])
        if name in _TYPES_WITH_DIGITS and modifiers:
            return SqlType(name, min(modifiers[0] or 0, _MAX_TIME_DIGITS))
        return SqlType(name)

    # Functions

    def _function(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        names = [part["String"]["sval"] for part in fields["funcname"]]
        if len(names) > 2 or (len(names) == 2 and names[0] not in _SCHEMAS):
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {'.'.join(names)}() does not exist", location)
        name = names[-1]
        if fields.get("func_variadic"):
            raise UnsupportedError("VARIADIC is not supported", location)
        nodes = fields.get("args", ())
        if any("NamedArgExpr" in node for node in nodes):
            nodes = _in_order(name, nodes, location)
        if name in _ROW_FUNCTIONS and len(nodes) == 1 and (row := _whole_row(nodes[0], scope)) is not None:
            return self._row_as_json(name, row, location)
        arguments = self.analyze_all(nodes, scope)
        if name in ("json_extract_path", "json_extract_path_text") and arguments and _is_json_text(arguments[0]):
            arguments = [_as_json(arguments[0]), *arguments[1:]]
        order = [self.sort_key(node["SortBy"], scope) for node in fields.get("agg_order", ())]
        if fields.get("agg_within_group"):
            if "over" in fields:
                raise UnsupportedError(f"OVER is not supported for ordered-set aggregate {name}", location)
            return self._ordered_set(name, arguments, order, fields, scope, location)
        found = self._find(name, arguments, fields, location)
        if found.signature.kind == "f":
            for clause, text in (
                ("agg_filter", "FILTER"),
                ("agg_distinct", "DISTINCT"),
                ("agg_order", "ORDER BY"),
                ("over", "OVER"),
            ):
                if fields.get(clause):
                    raise AnalysisError("42809", f"{text} specified, but {name} is not an aggregate function", location)
            if found.signature.key in _CURRENT_TIMES:
                return CurrentTime(TIMESTAMPTZ, location=location)
            if found.signature.key in ("age(timestamp)", "age(timestamptz)"):
                # The age at midnight of today.
                today = self.coerce(CurrentTime(DATE, location=location), SqlType(found.arguments[0]))
                return self._called(self._find(name, [today, *arguments], fields, location), [today, *arguments], location)
            return self._called(found, arguments, location)
        if found.signature.kind == "w" and "over" not in fields:
            raise AnalysisError(WINDOWING_ERROR, f"window function {name} requires an OVER clause", location)
        coerced, result = self._with_common_digits(found, self._coerced(found, arguments))
        condition = self.condition(fields["agg_filter"], scope, "FILTER") if "agg_filter" in fields else None
        call = Aggregate(
            digits_of_aggregate(found.signature.key, result, coerced),
            found.signature,
            coerced,
            bool(fields.get("agg_star")),
            bool(fields.get("agg_distinct")),
            order,
            (),
            condition,
            location=location,
        )
        if "over" not in fields and any(isinstance(part, Aggregate) for one in coerced for part in one.walk()):
            raise AnalysisError(GROUPING_ERROR, "aggregate function calls cannot be nested", location)
        return self._over(call, fields, scope)

    def _row_as_json(self, name: str, row: ScopeRelation, location: int) -> Expression:
        """Analyze `to_jsonb(table)` as an object of the table's columns."""
        pairs: list[Expression] = []
        for column in row.columns:
            if not column.is_hidden:
                pairs += (Constant(TEXT, column.name), column.expression)
        build = "jsonb_build_object" if name == "to_jsonb" else "json_build_object"
        found = self._catalog.find_function(build, [one.type for one in pairs])
        if found is None:
            raise UnsupportedError(f"{name} of a row is not supported", location)
        return self._called(found, pairs, location)

    def set_call(self, fields: Node, scope: Scope) -> Expression:
        """Return the call of a function in FROM, which may return rows."""
        location = _location(fields)
        name = fields["funcname"][-1]["String"]["sval"]
        arguments = self.analyze_all(fields.get("args", ()), scope)
        found = self._find(name, arguments, fields, location)
        if found.signature.kind != "f":
            raise AnalysisError(GROUPING_ERROR, "aggregate functions are not allowed in functions in FROM", location)
        if found.signature.key in _CURRENT_TIMES:
            return CurrentTime(TIMESTAMPTZ, location=location)
        return self._called(found, arguments, location)

    def _ordered_set(
        self,
        name: str,
        arguments: Sequence[Expression],
        order: Sequence[SortKey],
        fields: Node,
        scope: Scope,
        location: int,
    ) -> Aggregate:
        """Analyze `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)` and the like."""
        all_arguments = [*arguments, *(key.expression for key in order)]
        found = self._find(name, all_arguments, fields, location)
        coerced, result = self._with_common_digits(found, self._coerced(found, all_arguments))
        direct, sorted_by = coerced[: len(arguments)], coerced[len(arguments) :]
        keys = [SortKey(one, key.is_descending, key.nulls_first) for one, key in zip(sorted_by, order, strict=True)]
        condition = self.condition(fields["agg_filter"], scope, "FILTER") if "agg_filter" in fields else None
        return Aggregate(result, found.signature, direct, within_group=keys, condition=condition, location=location)

    def _find(self, name: str, arguments: Sequence[Expression], fields: Node, location: int) -> Resolved:
        types = [one.type for one in arguments]
        shown = f"{name}({', '.join(map(str, types))})"
        try:
            found = self._catalog.find_function(name, types)
        except AmbiguousCallError:
            raise AnalysisError(AMBIGUOUS_FUNCTION, f"function {shown} is not unique", location) from None
        if found is not None and name == "count" and not arguments and not fields.get("agg_star"):
            raise AnalysisError("42809", "count(*) must be used to call a parameterless aggregate function", location)
        if found is None and name.startswith("jsonb_path_"):
            raise UnsupportedError("paths of SQL/JSON are not supported; use ->, #> and @>", location)
        if found is None:
            hint = "" if self._catalog.has_function(name) else did_you_mean(name, self._catalog.function_names())
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {shown} does not exist{hint}", location)
        return found

    def _over(self, call: Aggregate, fields: Node, scope: Scope) -> Expression:
        if "over" not in fields:
            return call
        if self._queries is None:
            raise UnsupportedError("window functions can't be used here", call.location)
        if call.is_distinct:
            raise UnsupportedError("DISTINCT is not implemented for window functions", call.location)
        window = self._queries.window(fields["over"])
        partition = [self.settle(self.analyze(node, scope)) for node in window.get("partitionClause", ())]
        order = [self.sort_key(node["SortBy"], scope) for node in window.get("orderClause", ())]
        return WindowCall(call.type, call, partition, order, self._frame(window, order, scope), location=call.location)

    def _frame(self, window: Node, order: Sequence[SortKey], scope: Scope) -> WindowFrame | None:
        options = window.get("frameOptions", 0)
        if not options & 0x00001:  # not written
            return None
        mode = "RANGE" if options & 0x2 else "ROWS" if options & 0x4 else "GROUPS"
        ends = {
            0x00020: "UNBOUNDED PRECEDING", 0x00080: "UNBOUNDED FOLLOWING", 0x00200: "CURRENT ROW",
            0x00800: "PRECEDING", 0x02000: "FOLLOWING",
        }  # fmt: skip
        start = next(text for bit, text in ends.items() if options & bit)
        end = next(text for bit, text in ends.items() if options & (bit << 1))
        exclude = {0x08000: "CURRENT ROW", 0x10000: "GROUP", 0x20000: "TIES"}
        excluded = next((text for bit, text in exclude.items() if options & bit), "")

        def offset(name: str) -> Expression | None:
            if name not in window:
                return None
            found = self.analyze(window[name], scope)
            return self.coerce(found, INT8) if mode != "RANGE" else self._range_offset(found, order)

        return WindowFrame(mode, start, end, offset("startOffset"), offset("endOffset"), excluded)  # type: ignore[arg-type]

    def _range_offset(self, offset: Expression, order: Sequence[SortKey]) -> Expression:
        """Return the offset of a RANGE frame, in the type that can be added to what the window is ordered by."""
        if len(order) != 1:
            raise AnalysisError(
                WINDOWING_ERROR,
                "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
                offset.location,
            )
        ordered = order[0].expression.type
        is_time = ordered.name in ("date", "interval", *_TYPES_WITH_DIGITS)
        if offset.type == UNKNOWN:
            return self.coerce(offset, INTERVAL if is_time else ordered.plain)
        if is_time != (offset.type == INTERVAL):
            types = f"column type {ordered} and offset type {offset.type}"
            raise UnsupportedError(f"RANGE with offset PRECEDING/FOLLOWING is not supported for {types}", offset.location)
        return offset

    def sort_key(self, fields: Node, scope: Scope) -> SortKey:
        """Return an item of ORDER BY inside an expression."""
        return sort_key_of(self.settle(self.analyze(fields["node"], scope)), fields)

    # The rest

    def _array(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        nodes = fields.get("elements", ())
        if not nodes:
            raise AnalysisError("42P18", "cannot determine type of empty array; write it as ARRAY[]::integer[]", location)
        if any("A_ArrayExpr" in node for node in nodes):
            raise UnsupportedError("arrays of more than one dimension are not supported", location)
        target, items = self.common(self.analyze_all(nodes, scope), "ARRAY", location)
        return ArrayOf(target.array, items, location=location)

    def _indirection(self, fields: Node, scope: Scope) -> Expression:
        found = self.analyze(fields["arg"], scope)
        for step in fields["indirection"]:
            if "A_Indices" not in step:
                raise UnsupportedError("fields of composite values are not supported", found.location)
            indices = step["A_Indices"]
            if found.type == JSONB:
                found = json_subscript(self, found, indices, scope)
                continue
            if not found.type.is_array:
                raise AnalysisError(
                    DATATYPE_MISMATCH,
                    f"cannot subscript type {found.type} because it does not support subscripting",
                    found.location,
                )
            bounds = [
                None if name not in indices else self.coerce(self.analyze(indices[name], scope), INT4, "assignment")
                for name in ("lidx", "uidx")
            ]
            if indices.get("is_slice"):
                found = Slice(found.type, found, bounds[0], bounds[1], location=found.location)
            else:
                found = Element(found.type.element, found, bounds[1], location=found.location)
        return found

    def _value_function(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        target = _VALUE_FUNCTIONS.get(fields["op"].removesuffix("_N"))
        if target is None:
            name = fields["op"].removeprefix("SVFOP_").lower()
            raise UnsupportedError(f"{name} is not supported", location)
        current = CurrentTime(target, location=location)
        if fields["op"].endswith("_N"):
            digits = SqlType(target.name, min(fields.get("typmod", 0), _MAX_TIME_DIGITS))
            return self._cast_to_precision(current, digits, location)
        return current

    def _subquery(self, fields: Node, scope: Scope) -> Expression:
        location = _location(fields)
        if self._queries is None:
            raise UnsupportedError("subqueries can't be used here", location)
        query = self._queries.analyze(fields["subselect"], scope)
        kind = fields["subLinkType"]
        if kind == "EXISTS_SUBLINK":
            return Subquery(BOOL, "exists", query, location=location)
        if kind in ("EXPR_SUBLINK", "ARRAY_SUBLINK"):
            if len(query.types) != 1:
                raise AnalysisError(SYNTAX_ERROR, "subquery must return only one column", location)
            is_array = kind == "ARRAY_SUBLINK"
            return Subquery(
                query.types[0].array if is_array else query.types[0],
                "array" if is_array else "scalar",
                query,
                location=location,
            )
        if kind not in ("ANY_SUBLINK", "ALL_SUBLINK"):
            raise UnsupportedError("this subquery is not supported", location)
        operator = fields["operName"][-1]["String"]["sval"] if "operName" in fields else "="
        test = fields["testexpr"]
        nodes = test["RowExpr"].get("args", ()) if "RowExpr" in test else (test,)
        lefts = self.analyze_all(nodes, scope)
        if len(lefts) != len(query.types):
            few = "few" if len(lefts) > len(query.types) else "many"
            raise AnalysisError(SYNTAX_ERROR, f"subquery has too {few} columns", location)
        number = self._queries.next_number()
        rights = [ColumnReference(one, number, f"c{at}") for at, one in enumerate(query.types, 1)]
        comparison = self.row_comparison(operator, lefts, rights, location)
        return Subquery(BOOL, "any" if kind == "ANY_SUBLINK" else "all", query, comparison, number, location=location)

    def _grouping(self, fields: Node, scope: Scope) -> Expression:
        return GroupingOf(INT4, self.analyze_all(fields["args"], scope), location=_location(fields))

    def _collate(self, fields: Node, scope: Scope) -> Expression:
        name = fields["collname"][-1]["String"]["sval"]
        if name not in ("C", "POSIX", "default", "ucs_basic"):
            raise UnsupportedError(
                f'collation "{name}" is not supported; texts are ordered by their bytes ("C")', _location(fields)
            )
        return self.settle(self.analyze(fields["arg"], scope))

    def _row(self, fields: Node, scope: Scope) -> Expression:
        raise UnsupportedError("rows as values are not supported; name their items", _location(fields))

    def _set_to_default(self, fields: Node, scope: Scope) -> Expression:
        raise AnalysisError(SYNTAX_ERROR, "DEFAULT is not allowed in this context", _location(fields))


def sort_key_of(expression: Expression, fields: Node) -> SortKey:
    """Return a sort key with PostgreSQL's defaults: nulls are larger than everything."""
    if "USING" in fields.get("sortby_dir", ""):
        raise UnsupportedError("ORDER BY ... USING is not supported", expression.location)
    is_descending = fields.get("sortby_dir") == "SORTBY_DESC"
    nulls = fields.get("sortby_nulls", "SORTBY_NULLS_DEFAULT")
    nulls_first = is_descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
    return SortKey(expression, is_descending, nulls_first)


def _whole_row(node: Node, scope: Scope) -> ScopeRelation | None:
    """Return the FROM item whose rows a bare name means, unless it is the name of a column."""
    parts = node.get("ColumnRef", {}).get("fields", ())
    if len(parts) != 1 or "String" not in parts[0]:
        return None
    name = parts[0]["String"]["sval"]
    return None if scope.has_column(name) else scope.relation(name)


def _operands(call: Expression) -> tuple[Expression, Expression]:
    if not isinstance(call, Call) or len(call.arguments) != 2:
        raise UnsupportedError("this comparison is not supported", call.location)
    return call.arguments[0], call.arguments[1]


def _is_json_text(expression: Expression) -> bool:
    return isinstance(expression, ColumnReference) and expression.is_json_text


def _as_json(text: Expression) -> Expression:
    """Return the key or value of a record as JSON; null where it is none."""
    return Cast(JSONB, text, is_explicit=False, location=text.location)


def _number(text: str, location: int) -> Constant:
    """Return a number as PostgreSQL types it: the smallest of int4, int8 and numeric that holds it."""
    digits = text.lstrip("-").replace("_", "").lower()
    if (digits.isdigit() and len(digits) <= _MAX_INTEGER_DIGITS) or digits[:2] in ("0x", "0o", "0b"):
        value = int(digits, 0 if digits[:2] in ("0x", "0o", "0b") else 10)
        value = -value if text.startswith("-") else value
        if -(2**63) <= value < 2**63:
            return Constant(INT4 if -(2**31) <= value < 2**31 else INT8, value, location=location)
    decimal = read_text(text, NUMERIC)
    return Constant(_typed(NUMERIC, decimal), decimal, location=location)


def _typed(target: SqlType, value: object) -> SqlType:
    """Return the type of a constant: that of a numeric has the digits of its value."""
    if target.name == "numeric" and isinstance(value, Decimal):
        if not value.is_finite():
            return NUMERIC
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        return SqlType("numeric", max(len(digits) + max(0, int(exponent)), scale, 1), scale)
    return target


def _modifier(node: Node) -> int | None:
    value = node.get("A_Const", {}).get("ival")
    return None if value is None else value.get("ival", 0)


def _common_digits(found: Sequence[Expression]) -> SqlType:
    """Return the numeric type of values that may come from any of these: of fixed scale only if all have the same."""
    types = [one.type for one in found if not (isinstance(one, Constant) and one.value is None)]
    digits = [digits_of(one.element if one.is_array else one) for one in types]
    known = [one for one in digits if one is not None]
    if len(known) < len(digits) or len({scale for _, scale in known}) != 1:
        return NUMERIC
    return SqlType("numeric", max(precision for precision, _ in known), known[0][1])


def _with_digits(found: Expression, target: SqlType) -> Expression:
    if found.type == target:
        return found
    if isinstance(found, Constant) and found.value is None:
        return Constant(target, None, location=found.location)
    return Cast(target, found, location=found.location)


def _shown_operator(name: str, types: Sequence[SqlType]) -> str:
    return f"{types[0]} {name} {types[1]}" if len(types) == 2 else f"{name} {types[0]}"


def _in_order(name: str, nodes: Sequence[Node], location: int) -> list[Node]:
    """Return arguments by name in their order, with zero for those before the last that are not given."""
    names = _ARGUMENT_NAMES.get(name)
    if names is None:
        raise UnsupportedError("arguments by name are not supported; write them in order", location)
    given: dict[int, Node] = {}
    for at, node in enumerate(nodes):
        named = node.get("NamedArgExpr")
        if named is not None and named["name"] not in names:
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {name} has no argument {named['name']}", location)
        place = at if named is None else names.index(named["name"])
        if place in given:
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {name} has an argument twice", location)
        given[place] = node if named is None else named["arg"]
    if name != "make_interval" and len(given) != max(given) + 1:
        raise AnalysisError(UNDEFINED_FUNCTION, f"function {name} lacks an argument", location)
    zero: Node = {"A_Const": {"ival": {"ival": 0}}}
    return [given.get(at, zero) for at in range(max(given) + 1)]


def _location(fields: Node) -> int:
    location = fields.get("location", 0)
    return location if isinstance(location, int) else -1


_VALUE_FUNCTIONS = {
    "SVFOP_CURRENT_DATE": DATE,
    "SVFOP_CURRENT_TIMESTAMP": TIMESTAMPTZ,
    "SVFOP_LOCALTIMESTAMP": TIMESTAMP,
    "SVFOP_LOCALTIME": TIME,
}
_METHODS: dict[str, Callable[[ExpressionAnalyzer, Node, Scope], Expression]] = {
    "A_Const": ExpressionAnalyzer._literal,
    "ColumnRef": ExpressionAnalyzer._column,
    "ParamRef": ExpressionAnalyzer._parameter,
    "A_Expr": ExpressionAnalyzer._expression,
    "BoolExpr": ExpressionAnalyzer._logical,
    "NullTest": ExpressionAnalyzer._null_test,
    "BooleanTest": ExpressionAnalyzer._boolean_test,
    "CaseExpr": ExpressionAnalyzer._case,
    "CoalesceExpr": ExpressionAnalyzer._coalesce,
    "MinMaxExpr": ExpressionAnalyzer._extreme,
    "TypeCast": ExpressionAnalyzer._cast,
    "FuncCall": ExpressionAnalyzer._function,
    "A_ArrayExpr": ExpressionAnalyzer._array,
    "A_Indirection": ExpressionAnalyzer._indirection,
    "SQLValueFunction": ExpressionAnalyzer._value_function,
    "SubLink": ExpressionAnalyzer._subquery,
    "GroupingFunc": ExpressionAnalyzer._grouping,
    "CollateClause": ExpressionAnalyzer._collate,
    "RowExpr": ExpressionAnalyzer._row,
    "JsonIsPredicate": is_json,
    "JsonObjectConstructor": json_object,
    "JsonArrayConstructor": json_array,
    "JsonScalarExpr": json_scalar,
    "SetToDefault": ExpressionAnalyzer._set_to_default,
}
