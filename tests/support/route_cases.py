"""A table with a column of every kind, rows that are hard to get right, and a writer of random conditions about them."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import msgspec

from tailrace.model.ids import Cursor, TableId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import Operation
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.routes.check import CheckedRoute, check_route
from tailrace.sql.routes.compile import compile_for_spark
from tailrace.sql.statements import ExpressionText
from tailrace.wire.routing import ChangeEvent

Row = Mapping[str, Any]

TYPES = {
    "id": ColumnType("bigint"),
    "small": ColumnType("smallint"),
    "n": ColumnType("integer"),
    "x": ColumnType("double"),
    "amount": ColumnType("decimal", precision=10, scale=2),
    "rate": ColumnType("decimal", precision=20, scale=6),
    "name": ColumnType("text"),
    "flag": ColumnType("boolean"),
    "d": ColumnType("date"),
    "ts": ColumnType("timestamp"),
    "u": ColumnType("uuid"),
    "j": ColumnType("json"),
    "tags": ColumnType("list", element=ColumnType("text")),
    "nums": ColumnType("list", element=ColumnType("integer")),
    "b": ColumnType("bytes"),
    "wide": ColumnType("decimal", precision=50, scale=2),
}
TABLE = Table(
    id=TableId(1),
    name="chat.messages",
    columns=tuple(Column(name, type_) for name, type_ in TYPES.items()),
    primary_key=("id",),
    changes=TopicId(2),
    created_ms=0,
)
MOST, LEAST = (1 << 63) - 1, -(1 << 63)

_VALUES: dict[str, Sequence[Any]] = {
    "id": (1, 0, -1, 42, MOST, LEAST, 9_000_000_000),
    "small": (0, 1, -1, 32767, -32768, 7, None),
    "n": (0, 1, -3, 2**31 - 1, -(2**31), 10, None),
    "x": (0.0, -0.0, 1.5, -2.5, 0.1, 1e308, -1e308, 9.3e18, 2.0**53, 5e-324, None),
    "amount": (Decimal("0.00"), Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99"), Decimal("-2.50"), None),
    "rate": (Decimal("0.000001"), Decimal("-12345678901234.123456"), Decimal("0.100000"), Decimal("3.000000"), None),
    "name": (
        "",
        "abc",
        "ABC",
        "é😀x",
        "5",
        "+7",
        "-12",
        " 5",
        "5.5",
        "1e3",
        "0x10",
        "99999999999999999999",
        "00000000000000000000000000000001",
        "a%b_c\\d",
        "it's ${user}",
        'q"uo\te\n\x01',
        "true",
        "FALSE",
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "2024-02-29T23:59:59.5Z",
        "2024-02-29 24:00:00",
        "6F9619FF-8B86-D011-B42D-00CF4FC964FF",
        "5\n",
        "  two  ",
        "٣",
        "NaN",
        "1.25",
        None,
    ),
    "flag": (True, False, None),
    "d": (date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), None),
    "ts": (
        datetime(2024, 2, 29, 23, 59, 59, 500000, UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(2024, 2, 29, tzinfo=UTC),
        None,
    ),
    "u": ("6f9619ff-8b86-d011-b42d-00cf4fc964ff", "00000000-0000-0000-0000-000000000000", None),
    "j": ({"a": 1}, [1], None),
    "tags": (["a", "abc"], [], ["", None], None),
    "nums": ([1, 2], [None], [], [2**31 - 1, 1], None),
    "b": (b"\x00\xff", b"", None),
    "wide": (Decimal("1.00"), None),
}

_CONSTANTS: dict[str, Sequence[str]] = {
    "bigint": ("0", "1", "-1", "42", "9223372036854775807", "7"),
    "double": ("1.5", "0", "-2.5", "1e3", "0.1"),
    "decimal": ("1.5", "0", "-0.01", "12.345678", "3"),
    "text": ("''", "'abc'", "'5'", "'it''s ${user}'", "'é😀x'", "'2024-02-29'", "'a%b_c\\d'", "'true'"),
    "boolean": ("true", "false"),
    "date": ("'2024-02-29'", "'1970-01-01'", "date '0001-01-01'"),
    "timestamp": ("'2024-02-29'", "'2024-02-29 23:59:59.5'", "'1970-01-01T00:00:00Z'"),
    "uuid": ("'6F9619FF-8B86-D011-B42D-00CF4FC964FF'",),
}
_NUMBERS = ("bigint", "double", "decimal")
_KINDS = {kind: [name for name, type_ in TYPES.items() if type_.kind == kind] for kind in _CONSTANTS} | {
    "bigint": ["id", "small", "n"],
    "decimal": ["amount", "rate"],
}
_PATTERNS = ("'a%'", "'%b%'", "'_b_'", r"'a\%b\_c\\d'", "'%'", "'a!%%' escape '!'")


class Images(NamedTuple):
    old: Row | None
    new: Row | None


def checked(
    where: str | None, keys: Sequence[str] = (), operations: Sequence[Operation] = ("insert", "update"), table: Table = TABLE
) -> CheckedRoute:
    """The route of an analyzed condition and keys that Spark can compute."""
    condition = None if where is None else ExpressionText(where)
    route = check_route(condition, list(map(ExpressionText, keys)), operations, table, DEFAULT_LIMITS)
    compile_for_spark(route, table, DEFAULT_LIMITS)
    return route


def row(**values: Any) -> Row:
    """A row with these values, and nulls."""
    return {name: values.get(name) for name in TYPES}


def random_row(random: Random) -> Row:
    return {name: random.choice(values) for name, values in _VALUES.items()}


def hard_rows() -> list[Row]:
    """Rows in which every hard value comes at least once."""
    longest = max(map(len, _VALUES.values()))
    return [{name: values[at % len(values)] for name, values in _VALUES.items()} for at in range(longest)]


def event(images: Images, operation: Operation, cursor: int = 7) -> ChangeEvent:
    key = (images.new or images.old or {}).get("id")
    return ChangeEvent(
        operation, b'{"id":%d}' % (key or 0), encoded(images.old), encoded(images.new), 1_700_000_000_000, Cursor(cursor)
    )


def encoded(values: Row | None) -> bytes | None:
    """A row as it stands in a change event."""
    return None if values is None else msgspec.json.encode({name: _json(value) for name, value in values.items()})


def _json(value: Any) -> Any:
    match value:
        case Decimal():
            return format(value, "f")
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return value.replace(tzinfo=None).isoformat("T", "microseconds") + "Z"
        case date():
            return value.isoformat()
    return value


class Writer:
    """Writes random expressions. Some of them are rejected by the check, as they should be."""

    def __init__(self, random: Random, images: Sequence[str] = ("",)) -> None:
        self._random = random
        self._images = images

    def condition(self, depth: int = 3) -> str:
        pick = self._random.randrange(12) if depth else self._random.choice((2, 3, 4))
        match pick:
            case 0 | 1:
                parts = [self.condition(depth - 1) for _ in range(self._random.randint(2, 3))]
                return f"({self._random.choice((' AND ', ' OR ')).join(parts)})"
            case 2 | 3:
                kind = self._random.choice(tuple(_CONSTANTS))
                signs: tuple[str, ...] = ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
                if kind not in ("boolean", "uuid"):
                    signs += ("<", ">", "<=", ">=")
                return f"({self.value(kind, depth)} {self._random.choice(signs)} {self.value(kind, depth)})"
            case 4:
                return self._random.choice((self._column("boolean"), f"({self._column('boolean')} IS NOT TRUE)"))
            case 5:
                return f"(NOT {self.condition(depth - 1)})"
            case 6:
                kind = self._random.choice(tuple(_CONSTANTS))
                return f"({self.value(kind, depth - 1)} IS {self._random.choice(('NULL', 'NOT NULL'))})"
            case 7:
                kind = self._random.choice(("bigint", "text", "decimal", "date"))
                listed = ", ".join(self.value(kind, depth - 1) for _ in range(self._random.randint(1, 3)))
                return f"({self.value(kind, depth - 1)} {self._random.choice(('IN', 'NOT IN'))} ({listed}))"
            case 8:
                negated = self._random.choice(("", "NOT "))
                return f"({self.value('text', depth - 1)} {negated}LIKE {self._random.choice(_PATTERNS)})"
            case 9:
                kind = self._random.choice(("bigint", "double", "decimal", "timestamp"))
                low, high = self.value(kind, depth - 1), self.value(kind, depth - 1)
                return f"({self.value(kind, depth - 1)} BETWEEN {low} AND {high})"
            case 10:
                text, part = self.value("text", depth - 1), self.value("text", depth - 1)
                return self._random.choice((f"starts_with({text}, {part})", f"(strpos({text}, {part}) > 0)"))
        which = self._random.choice((("tags", "'abc'"), ("nums", "1"), ("tags", self._column("text"))))
        return f"({which[1]} = ANY ({self._named(which[0])}))"

    def value(self, kind: str, depth: int) -> str:
        random = self._random
        if depth <= 0 or random.random() < 0.3:
            return self._column(kind) if random.random() < 0.7 else random.choice(_CONSTANTS[kind])
        inner = depth - 1
        if random.random() < 0.15:
            return f"CASE WHEN {self.condition(inner)} THEN {self.value(kind, inner)} ELSE {self.value(kind, inner)} END"
        if random.random() < 0.15:
            function = random.choice(("coalesce", "nullif", *(() if kind in ("boolean", "uuid") else ("greatest", "least"))))
            return f"{function}({self.value(kind, inner)}, {self.value(kind, inner)})"
        if random.random() < 0.2:
            return self._cast(kind, inner)
        return self._operation(kind, inner)

    def _operation(self, kind: str, depth: int) -> str:
        random = self._random
        if kind in _NUMBERS:
            if random.random() < 0.2:
                return random.choice((f"abs({self.value(kind, depth)})", f"(- {self.value(kind, depth)})"))
            if kind == "bigint" and random.random() < 0.3:
                text, moment = self.value("text", depth), self.value("timestamp", depth)
                part = random.choice(("year", "month", "day", "hour", "minute"))
                return random.choice(
                    (f"length({text})", f"extract({part} FROM {moment})", f"cardinality({self._named('nums')})")
                )
            signs = {"bigint": "+-*%", "double": "+-*/", "decimal": "+-*"}[kind]
            return f"({self.value(kind, depth)} {random.choice(signs)} {self.value(kind, depth)})"
        if kind == "text":
            text = self.value("text", depth)
            return random.choice(
                (
                    f"lower({text})",
                    f"upper({text})",
                    f"trim({text})",
                    f"ltrim({text})",
                    f"rtrim({text})",
                    f"substring({text}, {random.randint(1, 3)}, {random.randint(0, 3)})",
                    f"({text} || {self.value('text', depth)})",
                )
            )
        return self.condition(depth) if kind == "boolean" else self._column(kind)

    def _cast(self, kind: str, depth: int) -> str:
        random = self._random
        sources, target = {
            "bigint": (("text", "double", "decimal", "boolean"), random.choice(("smallint", "integer", "bigint"))),
            "double": (("text", "bigint", "decimal"), "double precision"),
            "decimal": (("text", "bigint", "decimal"), random.choice(("decimal(10, 2)", "decimal(5, 0)", "decimal(12, 3)"))),
            "text": (("bigint", "boolean", "date", "uuid", "decimal"), "text"),
            "boolean": (("text",), "boolean"),
            "date": (("text", "timestamp"), "date"),
            "timestamp": (("text", "date"), "timestamptz"),
            "uuid": (("text",), "uuid"),
        }[kind]
        return f"CAST({self.value(random.choice(sources), depth)} AS {target})"

    def _column(self, kind: str) -> str:
        return self._named(self._random.choice(_KINDS[kind]))

    def _named(self, column: str) -> str:
        return f"{self._random.choice(self._images)}{column}"
