"""Resolves types, casts, operators and functions, as the type conversion chapter of PostgreSQL's manual says."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from tailrace.model.names import without_public
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.analysis.catalog import AmbiguousCallError, CastContext, Resolved, catalog, is_polymorphic
from tailrace.sql.analysis.datetime_texts import CURRENT_WORDS
from tailrace.sql.analysis.errors import (
    AMBIGUOUS_FUNCTION,
    CANNOT_COERCE,
    DATATYPE_MISMATCH,
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.interval_texts import FULL_RANGE, IntervalRange, read_interval
from tailrace.sql.analysis.numeric_digits import digits_of_call
from tailrace.sql.analysis.parse_tree import SYSTEM_SCHEMAS, Node, location_of
from tailrace.sql.analysis.tree import (
    ArrayOf,
    Call,
    Cast,
    ColumnReference,
    Constant,
    CurrentTime,
    Expression,
    Parameter,
)
from tailrace.sql.analysis.types import (
    DATE,
    INT4,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    UNKNOWN,
    SqlType,
    digits_of,
    is_enum,
)

_OTHER_TYPES = frozenset((
    "bit", "box", "char", "cidr", "circle", "inet", "jsonpath", "line", "lseg", "macaddr", "macaddr8", "money", "oid", "path",
    "pg_lsn", "point", "polygon", "regclass", "regproc", "regprocedure", "timetz", "tsquery", "tsvector", "varbit", "xml",
    "int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange",
))  # fmt: skip
"""Types of PostgreSQL that Tailrace does not have."""
_TYPE_NAMES = {"decimal": "numeric", "string": "text", "bytes": "bytea", "blob": "bytea", "double": "float8"}
_JSON_OPERATORS = frozenset(("->", "->>", "#>", "#>>"))
_MAX_NUMERIC_PRECISION = 1000
_MAX_LENGTH = 10_485_760
"""That of varchar(n) and char(n)."""
TYPES_WITH_DIGITS = ("timestamp", "timestamptz", "time")
MAX_TIME_DIGITS = 6


class TypeResolver:
    """Gives expressions the types that their places need, and finds the functions and operators that their types select."""

    def __init__(self) -> None:
        self.catalog = catalog()
        self.enums: dict[str, SqlType] = {}
        """The enums of columns of the statement's tables, by name. Casts can name them."""

    def note_enums(self, types: Iterable[SqlType]) -> None:
        """Note the enums among the types of columns."""
        for one in types:
            enum = one.element if one.is_array else one
            if is_enum(enum.name):
                self.enums[str(enum).lower()] = enum

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
        if not self.catalog.can_cast(found.type.name, target.name, context):
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
        constant = Constant(typed(target, value), value, location=found.location)
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
        name = self.catalog.common_type([one.type.name for one in found])
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
        if name in _JSON_OPERATORS and is_json_text(operands[0]):
            operands = [as_json(operands[0]), *operands[1:]]
        types = [one.type for one in operands]
        try:
            found = self.catalog.find_operator(name, types)
        except AmbiguousCallError:
            shown = _shown_operator(name, types)
            raise AnalysisError(AMBIGUOUS_FUNCTION, f"operator is not unique: {shown}", location) from None
        if found is None:
            shown = _shown_operator(name, types)
            raise AnalysisError(UNDEFINED_FUNCTION, f"operator does not exist: {shown}", location)
        return self.called(found, operands, location)

    def call(self, name: str, arguments: Sequence[Expression], location: int) -> Call:
        """Return the call of a function of the catalog."""
        return self.called(self.find_function(name, arguments, {}, location), arguments, location)

    def called(self, found: Resolved, arguments: Sequence[Expression], location: int) -> Call:
        """Return the call of a function or operator that was found, with its arguments coerced."""
        if found.signature.name == "pg_typeof":
            return Call(SqlType(found.result), found.signature, arguments, location=location)
        coerced, result = self.coerced_arguments(found, arguments)
        result = digits_of_call(found.signature.key, result, coerced)
        return Call(result, found.signature, coerced, location=location)

    def coerced_arguments(self, found: Resolved, given: Sequence[Expression]) -> tuple[list[Expression], SqlType]:
        """Return the arguments of a call and the type of its result, in which all numerics of a polymorphic type are alike."""
        arguments = [self.coerce(one, SqlType(name)) for one, name in zip(given, found.arguments, strict=True)]
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

    def cast_text(self, argument: Constant, target: SqlType) -> Expression:
        """A text that is cast to varchar(n) is cut, and one that is cast to char(n) is cut or padded."""
        if target.name in ("varchar", "bpchar") and target.length is not None and argument.value is not None:
            cut = str(argument.value)[: target.length]
            return Constant(target, cut.ljust(target.length) if target.name == "bpchar" else cut, location=argument.location)
        return self.coerce(argument, target, "explicit")

    def cast_to_precision(self, argument: Expression, target: SqlType, location: int) -> Expression:
        """Return a value of fewer digits or units, such as `timestamp(0)` or `interval day`, by the function that rounds it."""
        if target.name == "interval":
            units = IntervalRange(target.length or FULL_RANGE, target.precision)
            if isinstance(argument, Constant) and argument.type == UNKNOWN and argument.value is not None:
                return Constant(INTERVAL, read_interval(str(argument.value), units), location=location)
            modifier = (units.units << 16) | (0xFFFF if units.digits is None else units.digits)
        else:
            modifier = target.precision or 0
        value = self.coerce(argument, target.plain, "explicit", location)
        found = self.catalog.find_function(target.name, [target.plain, INT4])
        if found is None:
            raise UnsupportedError(f"a precision of {target} is not supported", location)
        return self.called(found, [value, Constant(INT4, modifier)], location)

    def type_of(self, fields: Node) -> SqlType:
        """Return the type that a statement names."""
        location = location_of(fields)
        names = [part["String"]["sval"] for part in fields["names"]]
        name = _TYPE_NAMES.get(names[-1], names[-1])
        written = ".".join(names).lower()
        enum = self.enums.get(written) or self.enums.get(without_public(written))
        if enum is not None:
            return enum.array if fields.get("arrayBounds") else enum
        if (
            (len(names) > 1 and names[0] not in SYSTEM_SCHEMAS)
            or not self.catalog.has_type(name)
            or self.catalog.category(name) == "P"
        ):
            if name in _OTHER_TYPES:
                raise UnsupportedError(f'the type "{name}" is not supported', location)
            hint = did_you_mean(
                names[-1], ["integer", "bigint", "text", "boolean", "numeric", "timestamptz", "jsonb", "double"]
            )
            message = f'type "{".".join(names)}" does not exist{hint}; an enum is known where a table of the statement uses it'
            raise AnalysisError(UNDEFINED_OBJECT, message, location)
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
        if name in TYPES_WITH_DIGITS and modifiers:
            return SqlType(name, min(modifiers[0] or 0, MAX_TIME_DIGITS))
        return SqlType(name)

    def find_function(self, name: str, arguments: Sequence[Expression], fields: Node, location: int) -> Resolved:
        """Return the function of the catalog that these arguments select."""
        types = [one.type for one in arguments]
        shown = f"{name}({', '.join(map(str, types))})"
        try:
            found = self.catalog.find_function(name, types)
        except AmbiguousCallError:
            raise AnalysisError(AMBIGUOUS_FUNCTION, f"function {shown} is not unique", location) from None
        if found is None and name.startswith("xml"):
            raise UnsupportedError("XML is not supported", location)
        if found is not None and name == "count" and not arguments and not fields.get("agg_star"):
            raise AnalysisError("42809", "count(*) must be used to call a parameterless aggregate function", location)
        if found is None and name.startswith("jsonb_path_"):
            raise UnsupportedError("paths of SQL/JSON are not supported; use ->, #> and @>", location)
        if found is None:
            hint = "" if self.catalog.has_function(name) else did_you_mean(name, self.catalog.function_names())
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {shown} does not exist{hint}", location)
        return found


def is_json_text(expression: Expression) -> bool:
    """Return whether this is the key or value of a record, which may be JSON."""
    return isinstance(expression, ColumnReference) and expression.is_json_text


def as_json(text: Expression) -> Expression:
    """Return the key or value of a record as JSON; null where it is none."""
    return Cast(JSONB, text, is_explicit=False, location=text.location)


def typed(target: SqlType, value: object) -> SqlType:
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
