"""Writes expressions and queries at random, the same ones each time: combinations that nobody would think of.

The grammar is directed by types, so nearly all cases are valid in PostgreSQL; some fail on some rows. A case depends on its
number only, so that cases can be added without changing others.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from tests.differential.corpus import Case, written_cases

EXPRESSIONS = 1_200
QUERIES = 400
KINDS = ("int", "decimal", "double", "text", "bool", "date", "timestamp", "json", "ints", "texts")

_COLUMNS = {
    "int": ("k", "k", "k", "id", "small", "n", "big"),
    "decimal": ("price", "price", "amount", "rate"),
    "double": ("y", "y", "x"),
    "text": ("word", "word", "t"),
    "bool": ("flag",),
    "date": ("d",),
    "timestamp": ("ts",),
    "json": ("j",),
    "ints": ("nums",),
    "texts": ("tags",),
}
_CONSTANTS = {
    "int": ("0", "1", "2", "-1", "7", "10", "100", "32768", "NULL::int"),
    "decimal": ("0.5", "1.25", "-2.50", "100.00", "3.333", "NULL::numeric"),
    "double": ("0.5::double precision", "2::double precision", "-1.25::double precision", "1e10::double precision"),
    "text": ("''", "'a'", "'apple'", "'Hello World'", "' x '", "'é'", "'10'", "NULL::text"),
    "bool": ("true", "false", "NULL::boolean"),
    "date": ("date '2024-02-29'", "date '2000-01-01'", "date '1969-12-31'"),
    "timestamp": ("timestamptz '2024-02-29 12:30:45.5+00'", "timestamptz '1969-12-31 23:59:59+00'"),
    "json": ("""'{"a": 1, "b": [1, 2]}'::jsonb""", "'[1, null]'::jsonb", "'5'::jsonb"),
    "ints": ("ARRAY[1, 2, 3]", "ARRAY[NULL, 2]", "'{}'::int[]"),
    "texts": ("ARRAY['a', 'b']", "'{}'::text[]"),
}
_ORDERED = ("int", "decimal", "double", "text", "date", "timestamp")
_INTERVALS = (
    "interval '1 day'",
    "interval '1 month'",
    "interval '90 minutes'",
    "interval '1 year 2 days'",
    "interval '-3 hours'",
)
_FIELDS = ("year", "month", "day", "dow", "doy", "week", "quarter", "hour", "minute", "epoch")
_UNITS = ("year", "quarter", "month", "week", "day", "hour")


class ExpressionWriter:
    """Writes one expression of a kind. `depth` bounds how many operators are nested."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._forms: dict[str, Callable[[int], Sequence[str]]] = {
            "int": self._ints,
            "decimal": self._decimals,
            "double": self._doubles,
            "text": self._texts,
            "bool": self._conditions,
            "date": self._dates,
            "timestamp": self._timestamps,
            "json": self._jsons,
            "ints": self._int_lists,
            "texts": self._text_lists,
        }

    def write(self, kind: str, depth: int) -> str:
        random = self._random
        if depth <= 0 or random.random() < 0.15:
            return random.choice(_COLUMNS[kind] if random.random() < 0.75 else _CONSTANTS[kind])
        chance = random.random()
        if chance < 0.08:
            condition = self.write("bool", depth - 1)
            return f"CASE WHEN {condition} THEN {self.write(kind, depth - 1)} ELSE {self.write(kind, depth - 1)} END"
        if chance < 0.15:
            return f"coalesce({self.write(kind, depth - 1)}, {self.write(kind, depth - 1)})"
        if chance < 0.19 and kind in _ORDERED:
            return f"nullif({self.write(kind, depth - 1)}, {self.write(kind, depth - 1)})"
        if chance < 0.23 and kind in _ORDERED:
            function = random.choice(("greatest", "least"))
            return f"{function}({self.write(kind, depth - 1)}, {self.write(kind, depth - 1)})"
        return random.choice(self._forms[kind](depth - 1))

    def _number(self, depth: int) -> str:
        return self.write(self._random.choice(("int", "int", "decimal", "double")), depth)

    def _ints(self, depth: int) -> Sequence[str]:
        of = self.write
        field = self._random.choice(_FIELDS)
        return (
            f"({of('int', depth)} {self._random.choice('+-*')} {of('int', depth)})",
            f"({of('int', depth)} {self._random.choice('/%')} {of('int', depth)})",
            f"(- {of('int', depth)})",
            f"abs({of('int', depth)})",
            f"length({of('text', depth)})",
            f"strpos({of('text', depth)}, {of('text', 0)})",
            f"({of('decimal', depth)})::int",
            f"({of('double', depth)})::int",
            f"({of('bool', depth)})::int",
            f"extract({field} FROM {of('timestamp', depth)})::bigint",
            f"({of('date', depth)} - {of('date', depth)})",
            f"cardinality({of('ints', depth)})",
            f"({of('ints', 0)})[{self._random.choice((1, 2, 3))}]",
            f"mod({of('int', depth)}, {self._random.choice((2, 3, 10))})",
            f"(j ->> 'a')::{self._random.choice(('int', 'numeric'))}::int",
        )

    def _decimals(self, depth: int) -> Sequence[str]:
        of = self.write
        return (
            f"({of('decimal', depth)} {self._random.choice('+-*')} {of('decimal', depth)})",
            f"({of('decimal', depth)} {self._random.choice('+-*')} {of('int', depth)})",
            f"({of('decimal', depth)} / {of('decimal', depth)})",
            f"({of('int', depth)} / {of('decimal', depth)})",
            f"round({of('decimal', depth)}, {self._random.choice((0, 1, 2, -1))})",
            f"trunc({of('decimal', depth)}, {self._random.choice((0, 1))})",
            f"round({of('decimal', depth)})",
            f"floor({of('decimal', depth)})",
            f"ceil({of('decimal', depth)})",
            f"abs({of('decimal', depth)})",
            f"(- {of('decimal', depth)})",
            f"({of('int', depth)})::numeric",
            f"({of('double', depth)})::numeric(12, 3)",
            f"({of('decimal', depth)})::numeric(10, 1)",
            f"extract(epoch FROM {of('date', depth)})",
        )

    def _doubles(self, depth: int) -> Sequence[str]:
        of = self.write
        return (
            f"({of('double', depth)} {self._random.choice('+-*')} {of('double', depth)})",
            f"({of('double', depth)} / {of('double', depth)})",
            f"({of('double', depth)} {self._random.choice('+-*')} {self._number(depth)})",
            f"(- {of('double', depth)})",
            f"abs({of('double', depth)})",
            f"floor({of('double', depth)})",
            f"round({of('double', depth)})",
            f"trunc({of('double', depth)})",
            f"sqrt(abs({of('double', depth)}))",
            f"({of('int', depth)})::double precision",
            f"({of('decimal', depth)})::double precision",
            f"power({of('double', depth)}, 2)",
            f"date_part('{self._random.choice(_FIELDS)}', {of('timestamp', depth)})",
        )

    def _texts(self, depth: int) -> Sequence[str]:
        of = self.write
        few = self._random.choice((-1, 0, 1, 2, 3))
        return (
            f"({of('text', depth)} || {of('text', depth)})",
            f"upper({of('text', depth)})",
            f"lower({of('text', depth)})",
            f"trim({of('text', depth)})",
            f"substring({of('text', depth)}, {few}, {self._random.choice((0, 1, 2, 5))})",
            f"left({of('text', depth)}, {few})",
            f"right({of('text', depth)}, {few})",
            f"replace({of('text', depth)}, 'a', {of('text', 0)})",
            f"split_part({of('text', depth)}, ' ', {self._random.choice((1, 2, -1))})",
            f"lpad({of('text', depth)}, {self._random.choice((3, 6))}, '*')",
            f"reverse({of('text', depth)})",
            f"repeat({of('text', depth)}, 2)",
            f"concat({of('text', depth)}, {of('int', depth)}, {of('text', depth)})",
            f"({of('int', depth)})::text",
            f"({of('decimal', depth)})::text",
            f"({of('bool', depth)})::text",
            f"({of('date', depth)})::text",
            f"({of('text', depth)} || {of('int', depth)})",
            f"({of('json', depth)} ->> 'a')",
            f"to_char({of('date', depth)}, 'YYYY-MM-DD')",
            f"regexp_replace({of('text', depth)}, '[aeiou]', '_', 'g')",
            f"array_to_string({of('texts', depth)}, '-')",
            f"md5({of('text', depth)})",
        )

    def _conditions(self, depth: int) -> Sequence[str]:
        of, random = self.write, self._random
        kind = random.choice(_ORDERED)
        sign = random.choice(("=", "<>", "<", "<=", ">", ">="))
        negated = random.choice(("", "NOT "))
        return (
            f"({of(kind, depth)} {sign} {of(kind, depth)})",
            f"({of(kind, depth)} {sign} {of(kind, depth)})",
            f"({self._number(depth)} {sign} {self._number(depth)})",
            f"({of('bool', depth)} {random.choice(('AND', 'OR'))} {of('bool', depth)})",
            f"(NOT {of('bool', depth)})",
            f"({of(random.choice(KINDS), depth)} IS {negated}NULL)",
            f"({of('bool', depth)} IS {negated}{random.choice(('TRUE', 'FALSE', 'UNKNOWN'))})",
            f"({of(kind, depth)} IS {negated}DISTINCT FROM {of(kind, depth)})",
            f"({of(kind, depth)} {negated}BETWEEN {of(kind, 0)} AND {of(kind, 0)})",
            f"({of(kind, depth)} {negated}IN ({of(kind, 0)}, {of(kind, 0)}, {of(kind, 0)}))",
            f"({of('text', depth)} {negated}LIKE {random.choice(_PATTERNS)})",
            f"({of('text', depth)} {negated}ILIKE {random.choice(_PATTERNS)})",
            f"({of('text', depth)} ~ {random.choice(_REGEXES)})",
            f"({of('int', depth)} = ANY ({of('ints', 0)}))",
            f"({of('ints', depth)} @> {of('ints', 0)})",
            f"({of('json', depth)} @> '{{\"a\": 1}}')",
            f"({of('json', depth)} ? 'a')",
            f"starts_with({of('text', depth)}, {of('text', 0)})",
        )

    def _dates(self, depth: int) -> Sequence[str]:
        of = self.write
        return (
            f"({of('date', depth)} + {self._random.choice(('1', '30', '-1', 'k'))})",
            f"({of('date', depth)} - {self._random.choice(('1', '365', 'k'))})",
            f"({of('timestamp', depth)})::date",
            f"({of('date', depth)} + {self._random.choice(_INTERVALS)})::date",
            f"date_trunc('{self._random.choice(_UNITS)}', {of('date', depth)})::date",
            f"make_date(2024, coalesce(k, 1), {self._random.choice((1, 28, 29))})",
        )

    def _timestamps(self, depth: int) -> Sequence[str]:
        of, interval = self.write, self._random.choice(_INTERVALS)
        return (
            f"({of('timestamp', depth)} + {interval})",
            f"({of('timestamp', depth)} - {interval})",
            f"date_trunc('{self._random.choice(_UNITS)}', {of('timestamp', depth)})",
            f"({of('date', depth)})::timestamptz",
            f"({of('date', depth)} + {interval})",
            f"({of('timestamp', depth)} AT TIME ZONE '{self._random.choice(('UTC', 'America/New_York'))}')",
            f"to_timestamp({of('int', 0)})",
        )

    def _jsons(self, depth: int) -> Sequence[str]:
        of = self.write
        kind = self._random.choice(("int", "text", "bool", "decimal", "ints"))
        return (
            f"({of('json', depth)} -> 'a')",
            f"({of('json', depth)} -> 'b')",
            f"({of('json', depth)} -> {self._random.choice((0, 1, -1))})",
            f"({of('json', depth)} #> '{{b,0}}')",
            f"to_jsonb({of(kind, depth)})",
            f"jsonb_build_object('a', {of(kind, depth)}, 'b', {of('text', depth)})",
            f"jsonb_build_array({of(kind, depth)}, {of('int', depth)})",
            f"({of('json', depth)} || '{{\"z\": 1}}')",
            f"jsonb_strip_nulls({of('json', depth)})",
        )

    def _int_lists(self, depth: int) -> Sequence[str]:
        of = self.write
        return (
            f"ARRAY[{of('int', depth)}, {of('int', depth)}]",
            f"({of('ints', depth)} || {of('ints', depth)})",
            f"array_append({of('ints', depth)}, 4)",
            f"array_remove({of('ints', depth)}, 1)",
            f"({of('ints', 0)})[1:2]",
        )

    def _text_lists(self, depth: int) -> Sequence[str]:
        of = self.write
        return (
            f"ARRAY[{of('text', depth)}, {of('text', depth)}]",
            f"string_to_array({of('text', depth)}, ' ')",
            f"array_append({of('texts', depth)}, 'z')",
            f"array_remove({of('texts', depth)}, 'a')",
        )


_PATTERNS = ("'a%'", "'%e'", "'_p%'", "'%an%'", "''", "'a\\%%'", "'A%'")
_REGEXES = ("'^a'", "'[[:digit:]]'", "'e$'", "'^[A-Z]'", "'a|b'", "'\\s'")


def generated_cases() -> list[Case]:
    expressions = _distinct("expression", EXPRESSIONS, _expression)
    return [*expressions, *_distinct("query", QUERIES, _query)]


def _distinct(kind: Literal["expression", "query"], count: int, write: Callable[[Random], tuple[str, str]]) -> list[Case]:
    written = {case.text for case in written_cases()}
    found: dict[str, Case] = {}
    number = 0
    while len(found) < count:
        number += 1
        subject, text = write(Random(f"{kind} {number}"))
        if text not in written:
            found.setdefault(text, Case(kind, f"generated {subject}", text, is_generated=True))
    return list(found.values())


def _expression(random: Random) -> tuple[str, str]:
    kind = random.choice((*KINDS, "int", "decimal", "text", "bool", "bool"))
    return kind, ExpressionWriter(random).write(kind, random.choice((1, 2, 2, 3)))


def _query(random: Random) -> tuple[str, str]:
    writer = ExpressionWriter(random)
    write = random.choice((_filtered, _filtered, _grouped, _grouped, _windowed, _joined, _nested, _combined))
    return write.__name__.removeprefix("_"), write(random, writer)


def _filtered(random: Random, writer: ExpressionWriter) -> str:
    kind = random.choice(_ORDERED)
    direction = random.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
    limit = random.choice(("", "", " LIMIT 5", " LIMIT 3 OFFSET 2"))
    condition = writer.write("bool", 2)
    order = f"{random.choice(_COLUMNS[kind])}{direction}, id{limit}"
    return f"SELECT id, {writer.write(kind, 1)} AS a FROM v WHERE {condition} ORDER BY {order}"


def _aggregate(random: Random, writer: ExpressionWriter) -> str:
    number = writer.write(random.choice(("int", "decimal")), 1)
    filtered = random.choice(("", "", f" FILTER (WHERE {writer.write('bool', 1)})"))
    distinct = random.choice(("", "", "DISTINCT "))
    return random.choice(
        (
            f"count(*){filtered}",
            f"count({distinct}{writer.write(random.choice(_ORDERED), 1)}){filtered}",
            f"sum({distinct}{number}){filtered}",
            f"avg({number}){filtered}",
            f"min({writer.write(random.choice(_ORDERED), 1)}){filtered}",
            f"max({writer.write(random.choice(_ORDERED), 1)}){filtered}",
            f"bool_or({writer.write('bool', 1)}){filtered}",
            f"string_agg({writer.write('text', 1)}, ',' ORDER BY id){filtered}",
            f"array_agg({writer.write('int', 1)} ORDER BY id){filtered}",
        )
    )


def _grouped(random: Random, writer: ExpressionWriter) -> str:
    group = random.choice(("k", "flag", "word", "k % 2", "k IS NULL", "length(word)", "date_trunc('year', ts)", "price > 10"))
    first, second = _aggregate(random, writer), _aggregate(random, writer)
    having = random.choice(("", "", " HAVING count(*) > 2"))
    where = random.choice(("", f" WHERE {writer.write('bool', 1)}"))
    grouping = random.choice(("{0}", "{0}", "{0}", "ROLLUP ({0})"))
    return (
        f"SELECT {group} AS g, {first} AS a, {second} AS b FROM v{where} GROUP BY {grouping.format(group)}{having}"
        " ORDER BY g NULLS LAST, count(*)"
    )


def _windowed(random: Random, writer: ExpressionWriter) -> str:
    over = random.choice(
        ("ORDER BY id", "PARTITION BY k ORDER BY id", "PARTITION BY flag ORDER BY k, id", "ORDER BY word DESC, id")
    )
    frame = random.choice(("", "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING"))
    number = writer.write("int", 1)
    called = random.choice(
        (
            "row_number()",
            "rank()",
            f"lag({number})",
            f"lead({number}, 2)",
            f"sum({number})",
            f"min({number})",
            "count(*)",
            "ntile(3)",
        )
    )
    frame = frame if called.startswith(("sum", "min", "count")) else ""
    return f"SELECT id, {called} OVER ({over}{frame}) AS a FROM v WHERE {writer.write('bool', 1)} ORDER BY id"


def _joined(random: Random, _: ExpressionWriter) -> str:
    kind = random.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    extra = random.choice(("", " AND o.status = 'paid'", " AND o.total > 20", " AND c.vip"))
    where = random.choice(
        ("", " WHERE o.total IS NOT NULL", " WHERE c.city = 'London'", " WHERE o.note IS NULL", " WHERE c.id IS NULL")
    )
    selected = random.choice(
        (
            "c.name AS a, o.id AS b",
            "c.id AS a, o.total * 2 AS b",
            "coalesce(c.name, 'nobody') AS a, coalesce(o.total, 0) AS b",
            "upper(c.city) AS a, o.placed::date AS b",
            "c.balance + o.total AS a, o.status AS b",
        )
    )
    if random.random() < 0.4:
        return (
            f"SELECT c.city AS a, count(o.id) AS b, sum(o.total) AS s FROM customers c {kind} orders o ON o.customer_id = c.id"
            f"{extra}{where} GROUP BY c.city ORDER BY c.city"
        )
    return f"SELECT {selected} FROM customers c {kind} orders o ON o.customer_id = c.id{extra}{where} ORDER BY c.id, o.id"


def _nested(random: Random, writer: ExpressionWriter) -> str:
    inner = random.choice(("SELECT k FROM v", "SELECT line FROM items", f"SELECT id FROM v WHERE {writer.write('bool', 1)}"))
    condition = random.choice(
        (
            f"k IN ({inner})",
            f"k NOT IN ({inner})",
            f"EXISTS ({inner})",
            f"k >= ALL ({inner} LIMIT 3)",
            f"k = ANY ({inner})",
            "price > (SELECT avg(price) FROM v)",
            "EXISTS (SELECT 1 FROM items WHERE items.line = v.k)",
            "(SELECT count(*) FROM items WHERE items.line = v.k) > 2",
        )
    )
    return f"SELECT id FROM v WHERE {condition.replace(' LIMIT 3', '')} AND {writer.write('bool', 1)} ORDER BY id"


def _combined(random: Random, writer: ExpressionWriter) -> str:
    kind = random.choice(("int", "decimal", "text", "date"))
    sign = random.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"))
    left, right = writer.write(kind, 1), writer.write(kind, 1)
    return f"SELECT {left} AS a FROM v {sign} SELECT {right} FROM v WHERE id < 12 ORDER BY a"
