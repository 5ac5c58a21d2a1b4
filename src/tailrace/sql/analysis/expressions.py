"""Analyzes expressions: resolves names, functions and operators, and writes out every cast, as PostgreSQL does."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from tailrace.sql.analysis.coercion import MAX_TIME_DIGITS, TYPES_WITH_DIGITS, TypeResolver, is_json_text, typed
from tailrace.sql.analysis.errors import (
    DATATYPE_MISMATCH,
    SYNTAX_ERROR,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.function_calls import function_call
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.json_syntax import is_json, json_array, json_object, json_scalar, json_subscript
from tailrace.sql.analysis.parse_tree import Node, location_of
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.session_values import session_value
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
    GroupingOf,
    InList,
    Logical,
    NullIf,
    NullTest,
    Parameter,
    Slice,
    SortKey,
    Subquery,
)
from tailrace.sql.analysis.types import (
    BOOL,
    DATE,
    INT4,
    INT8,
    JSONB,
    NUMERIC,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
)

if TYPE_CHECKING:
    from tailrace.sql.analysis.queries import QueryAnalyzer

_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_MAX_INTEGER_DIGITS = 100


class ExpressionAnalyzer(TypeResolver):
    """Analyzes the expressions of one statement."""

    def __init__(self, parameter_types: Sequence[SqlType], queries: "QueryAnalyzer | None" = None) -> None:
        super().__init__()
        self._parameter_types = parameter_types
        self.queries = queries

    def analyze(self, node: Node, scope: Scope) -> Expression:
        """Return the expression of a parse tree."""
        ((kind, fields),) = node.items()
        method = _METHODS.get(kind)
        if method is None:
            name = fields["op"].removesuffix("_OP") if kind == "JsonFuncExpr" else kind
            raise UnsupportedError(f"{name} is not supported", location_of(fields))
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

    # Constants and names

    def _literal(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
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
        location = location_of(fields)
        parts = fields["fields"]
        if "A_Star" in parts[-1]:
            raise AnalysisError(SYNTAX_ERROR, "* is not allowed here", location)
        names = [part["String"]["sval"] for part in parts]
        return scope.find(names[-1], ".".join(names[:-1]) or None, location)

    def _parameter(self, fields: Node, scope: Scope) -> Expression:
        number = fields.get("number", 0)
        location = location_of(fields)
        if not 1 <= number <= len(self._parameter_types):
            raise AnalysisError("42P02", f"there is no parameter ${number}", location)
        return Parameter(self._parameter_types[number - 1], number, location=location)

    # Operators

    def _expression(self, fields: Node, scope: Scope) -> Expression:
        kind = fields["kind"]
        location = location_of(fields)
        name = fields["name"][-1]["String"]["sval"]
        if kind in ("AEXPR_IN",):
            return self._in_list(fields, scope, is_negated=name == "<>")
        if kind in ("AEXPR_BETWEEN", "AEXPR_NOT_BETWEEN", "AEXPR_BETWEEN_SYM", "AEXPR_NOT_BETWEEN_SYM"):
            return self._between(fields, scope)
        if kind in ("AEXPR_OP_ANY", "AEXPR_OP_ALL"):
            return self._any_or_all(fields, scope, name, is_all=kind == "AEXPR_OP_ALL")
        if "RowExpr" in fields.get("lexpr", ()) and "RowExpr" in fields["rexpr"]:
            return self._rows_compared(name, kind, fields, scope, location)
        if "RowExpr" in fields.get("lexpr", ()) and "SubLink" in fields["rexpr"]:
            raise UnsupportedError("a comparison of a row with the row of a subquery is not supported; use IN", location)
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
        location = location_of(fields)
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
        name = self.catalog.common_type([left.type.name, *(one.type.name for one in constants)]) if len(constants) > 1 else None
        if name is not None:
            target = SqlType(name)
            items = [self.coerce(one, target) if one in constants else one for one in items]
        return InList(BOOL, [self.operator("=", [left, item], location) for item in items], is_negated, location=location)

    def _between(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
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
        location = location_of(fields)
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
        return Logical(BOOL, operator, arguments, location=location_of(fields))  # type: ignore[arg-type]

    def _null_test(self, fields: Node, scope: Scope) -> Expression:
        is_negated = fields["nulltesttype"] == "IS_NOT_NULL"
        if "RowExpr" in fields["arg"]:
            parts = self.analyze_all(fields["arg"]["RowExpr"].get("args", ()), scope)
            tests = [NullTest(BOOL, self.settle(part), is_negated) for part in parts]
            return Logical(BOOL, "and", tests, location=location_of(fields))
        return NullTest(BOOL, self.settle(self.analyze(fields["arg"], scope)), is_negated, location=location_of(fields))

    def _boolean_test(self, fields: Node, scope: Scope) -> Expression:
        name = fields["booltesttype"]
        wanted = {"TRUE": True, "FALSE": False, "UNKNOWN": None}[name.rpartition("_")[2]]
        argument = self.condition(fields["arg"], scope, name.replace("_", " "))
        return BooleanTest(BOOL, argument, wanted, "NOT" in name, location=location_of(fields))

    def _case(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
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
        location = location_of(fields)
        target, coerced = self.common(self.analyze_all(fields["args"], scope), "COALESCE", location)
        return Coalesce(target, coerced, location=location)

    def _extreme(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
        is_greatest = fields["op"] == "IS_GREATEST"
        name = "GREATEST" if is_greatest else "LEAST"
        target, coerced = self.common(self.analyze_all(fields["args"], scope), name, location)
        return Extreme(target, coerced, is_greatest, location=location)

    # Casts

    def _cast(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
        target = self.type_of(fields["typeName"])
        if target.name in (*TYPES_WITH_DIGITS, "interval") and target != target.plain:
            return self.cast_to_precision(self.analyze(fields["arg"], scope), target, location)
        if "A_ArrayExpr" in fields["arg"] and target.is_array:
            array = fields["arg"]["A_ArrayExpr"]
            items = [self.coerce(self.analyze(node, scope), target.element, "explicit") for node in array.get("elements", ())]
            return ArrayOf(target, items, location=location)
        argument = self.analyze(fields["arg"], scope)
        if argument.type.name == target.name and target == target.plain:
            return argument
        if isinstance(argument, Constant) and argument.type == UNKNOWN:
            return self.cast_text(argument, target)
        if is_json_text(argument) and target.name in ("json", "jsonb"):
            return Cast(target, argument, is_explicit=True, location=location)
        return self.coerce(argument, target, "explicit", location)

    def sort_key(self, fields: Node, scope: Scope) -> SortKey:
        """Return an item of ORDER BY inside an expression."""
        return sort_key_of(self.settle(self.analyze(fields["node"], scope)), fields)

    # The rest

    def _array(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
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
        location = location_of(fields)
        value = session_value(fields, location)
        if value is not None:
            return value
        target = _VALUE_FUNCTIONS.get(fields["op"].removesuffix("_N"))
        if target is None:
            name = fields["op"].removeprefix("SVFOP_").lower()
            raise UnsupportedError(f"{name} is not supported", location)
        current = CurrentTime(target, location=location)
        if fields["op"].endswith("_N"):
            digits = SqlType(target.name, min(fields.get("typmod", 0), MAX_TIME_DIGITS))
            return self.cast_to_precision(current, digits, location)
        return current

    def _subquery(self, fields: Node, scope: Scope) -> Expression:
        location = location_of(fields)
        if self.queries is None:
            raise UnsupportedError("subqueries can't be used here", location)
        query = self.queries.analyze(fields["subselect"], scope)
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
        number = self.queries.next_number()
        rights = [ColumnReference(one, number, f"c{at}") for at, one in enumerate(query.types, 1)]
        comparison = self.row_comparison(operator, lefts, rights, location)
        return Subquery(BOOL, "any" if kind == "ANY_SUBLINK" else "all", query, comparison, number, location=location)

    def _grouping(self, fields: Node, scope: Scope) -> Expression:
        return GroupingOf(INT4, self.analyze_all(fields["args"], scope), location=location_of(fields))

    def _collate(self, fields: Node, scope: Scope) -> Expression:
        name = fields["collname"][-1]["String"]["sval"]
        if name not in ("C", "POSIX", "default", "ucs_basic"):
            raise UnsupportedError(
                f'collation "{name}" is not supported; texts are ordered by their bytes ("C")', location_of(fields)
            )
        return self.settle(self.analyze(fields["arg"], scope))

    def _row(self, fields: Node, scope: Scope) -> Expression:
        raise UnsupportedError("rows as values are not supported; name their items", location_of(fields))

    def _set_to_default(self, fields: Node, scope: Scope) -> Expression:
        raise AnalysisError(SYNTAX_ERROR, "DEFAULT is not allowed in this context", location_of(fields))


def sort_key_of(expression: Expression, fields: Node) -> SortKey:
    """Return a sort key with PostgreSQL's defaults: nulls are larger than everything."""
    if "USING" in fields.get("sortby_dir", ""):
        raise UnsupportedError("ORDER BY ... USING is not supported", expression.location)
    is_descending = fields.get("sortby_dir") == "SORTBY_DESC"
    nulls = fields.get("sortby_nulls", "SORTBY_NULLS_DEFAULT")
    nulls_first = is_descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
    return SortKey(expression, is_descending, nulls_first)


def _operands(call: Expression) -> tuple[Expression, Expression]:
    if not isinstance(call, Call) or len(call.arguments) != 2:
        raise UnsupportedError("this comparison is not supported", call.location)
    return call.arguments[0], call.arguments[1]


def _number(text: str, location: int) -> Constant:
    """Return a number as PostgreSQL types it: the smallest of int4, int8 and numeric that holds it."""
    digits = text.lstrip("-").replace("_", "").lower()
    if (digits.isdigit() and len(digits) <= _MAX_INTEGER_DIGITS) or digits[:2] in ("0x", "0o", "0b"):
        value = int(digits, 0 if digits[:2] in ("0x", "0o", "0b") else 10)
        value = -value if text.startswith("-") else value
        if -(2**63) <= value < 2**63:
            return Constant(INT4 if -(2**31) <= value < 2**31 else INT8, value, location=location)
    decimal = read_text(text, NUMERIC)
    return Constant(typed(NUMERIC, decimal), decimal, location=location)


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
    "FuncCall": function_call,
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
