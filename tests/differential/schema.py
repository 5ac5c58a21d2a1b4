"""The tables that cases ask about, the same in PostgreSQL and in Tailrace.

`v` has a column of every type with values that are hard to get right, mild columns (`k`, `y`, `price`, `word`), and a column
`r_...` of every type that UPDATE cases assign to. The others are a shop and a company, for joins and groups.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

TOPIC = "events"
ROW_COUNT = 24

POSTGRES_COLUMN_TYPES = {
    "double": "double precision",
    "bytes": "bytea",
    "timestamp": "timestamptz",
    "json": "jsonb",
}
"""How PostgreSQL writes the types of Tailrace that it knows by another name."""


class SqlTable(NamedTuple):
    name: str
    columns: dict[str, str]
    """Types by column, as Tailrace writes them."""
    key: str
    rows: Sequence[Sequence[str]]
    """SQL literals that both understand."""

    def create(self, types: dict[str, str]) -> str:
        columns = ", ".join(f"{name} {types.get(type_, type_)}" for name, type_ in self.columns.items())
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({self.key}))"

    def insert(self) -> str:
        names = list(self.columns)[: len(self.rows[0])]
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows)
        return f"INSERT INTO {self.name} ({', '.join(names)}) VALUES {rows}"


def _quoted(*texts: str | None) -> tuple[str, ...]:
    return tuple("NULL" if text is None else "'" + text.replace("'", "''") + "'" for text in texts)


_VALUES: dict[str, tuple[str, Sequence[str]]] = {
    "small": ("smallint", ("0", "1", "-1", "32767", "-32768", "7", "NULL")),
    "n": ("integer", ("0", "1", "-3", "2147483647", "-2147483648", "10", "NULL", "42", "-7")),
    "big": ("bigint", ("1", "0", "-1", "42", "9223372036854775807", "-9223372036854775808", "9000000000", "NULL")),
    "x": ("double", ("0.0", "1.5", "-2.5", "0.1", "1e308", "-1e308", "2.5", "9007199254740992", "5e-324", "NULL", "0.5")),
    "amount": ("decimal(10, 2)", ("0.00", "1.50", "-0.01", "99999999.99", "-2.50", "10.00", "NULL", "2.45")),
    "rate": ("decimal(20, 6)", ("0.000001", "'-12345678901234.123456'", "0.100000", "3.000000", "NULL")),
    "free": (
        "decimal",
        ("0", "1.50", "'-98765432109876543210987654321098765432.25'", "'NaN'", "1e-12", "'Infinity'", "NULL", "1.5", "-0.000"),
    ),
    "span": (
        "interval",
        _quoted(
            "1 day", "24:00", "1 mon", "30 days", "1 year 2 mons 3 days 04:05:06.789", "-1 mons +2 days -03:00:00", None, "0",
            "00:00:00.000001", "1 year", "90 minutes",
        ),
    ),
    "flag": ("boolean", ("true", "false", "NULL", "true")),
    "t": (
        "text",
        _quoted(
            "", "abc", "ABC", "é😀x", "e\u0301tude", " lead", "trail ", "  two  ", "a%b_c\\d", "it's", "tab\tnew\nline", "ß",
            "5", "-12", "1.25", None, "foo bar baz", "Hello, World", "2024-02-29", "日本語", "aaa", "NULL",
            "straße.com", "x@y.org",
        ),
    ),
    "b": ("bytes", ("'\\x00ff'", "'\\x'", "NULL", "'\\x616263'", "'\\xdeadbeef'")),
    "d": (
        "date",
        _quoted(
            "2024-02-29", "0099-12-31", "9900-01-01", "1970-01-01", "1969-12-31", "2000-02-29", "1900-03-01",
            None, "2026-01-31",
        ),
    ),
    "ts": (
        "timestamp",
        _quoted(
            "2024-02-29 23:59:59.5+00", "0099-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", "2024-02-29 00:00:00+00",
            None,
            "2026-01-31 13:45:00.5+00", "2023-12-31 23:00:00+00", "2000-01-01 12:30:45.123456+00", "2024-03-31 01:30:00+00",
            "1970-01-01 00:00:00+00", "2024-12-30 06:07:08+00",
        ),
    ),
    "u": ("uuid", _quoted("6f9619ff-8b86-d011-b42d-00cf4fc964ff", "00000000-0000-0000-0000-000000000000", None)),
    "j": (
        "json",
        _quoted(
            '{"a": 1, "b": [1, 2, {"c": null}], "s": "x"}', '[1, "two", null, true, {"k": "v"}]', '"null"',
            '"text"', "12.50", "true",
            "{}", "[]", None, '{"a": {"b": {"c": {"d": [1, 2]}}}}', '{"a": null, "é": "ü", "": 1}',
            '{"big": 12345678901234567890, "f": 1e3, "neg": -0.5}', '{"b": true, "a": "1"}', '{"a": "x", "tags": ["p", "q"]}',
        ),
    ),
    "tags": (
        "text[]",
        (
            "ARRAY['a', 'abc']", "NULL", "ARRAY['', NULL]", "ARRAY['x', 'y', 'z']", "ARRAY['a', 'a', 'b']",
            "ARRAY['it''s', 'é,\"x']",
        ),
    ),
    "nums": ("integer[]", ("ARRAY[1, 2]", "ARRAY[3, 1, 2]", "NULL", "ARRAY[2147483647, 1]", "ARRAY[1, NULL, 3]", "ARRAY[5]")),
    "k": ("integer", ("1", "2", "3", "2", "NULL", "4", "1")),
    "y": ("double", ("0.5", "1.25", "-3.75", "2", "NULL", "100.125")),
    "price": ("decimal(8, 2)", ("9.99", "10.50", "0.05", "100.00", "NULL", "19.90", "-1.25")),
    "word": ("text", _quoted("apple", "Banana", "cherry", "apple", None, "fig", "Elderberry", "date")),
}  # fmt: skip

RESULT_TYPES = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "integer",
    "bigint": "bigint",
    "double": "double",
    "decimal": "decimal",
    "text": "text",
    "bytes": "bytes",
    "date": "date",
    "timestamp": "timestamp",
    "uuid": "uuid",
    "interval": "interval",
    "json": "json",
    "text[]": "text[]",
    "integer[]": "integer[]",
}
"""The columns of `v` that UPDATE assigns to: the type that an expression has, and the type of its column."""


def result_column(type_name: str) -> str:
    return "r_" + type_name.replace("[]", "_list")


def _values() -> Iterator[Sequence[str]]:
    for at in range(ROW_COUNT):
        yield (str(at + 1), *(values[at % len(values)] for _, values in _VALUES.values()))


_ADA, _BJORN, _DAVE = _quoted('{"lang": "en", "score": 7}', '{"lang": "no", "score": 3}', '{"lang": "en", "tags": ["a", "b"]}')

TABLES = (
    SqlTable(
        "v",
        {
            "id": "integer",
            **{name: type_ for name, (type_, _) in _VALUES.items()},
            **{result_column(name): type_ for name, type_ in RESULT_TYPES.items()},
        },
        "id",
        list(_values()),
    ),
    SqlTable(
        "customers",
        {
            "id": "integer", "name": "text", "email": "text", "city": "text", "born": "date", "vip": "boolean",
            "balance": "decimal(12, 2)", "profile": "json",
        },
        "id",
        (
            ("1", "'Ada'", "'ada@example.com'", "'London'", "'1990-12-10'", "true", "120.50", _ADA),
            ("2", "'Björn'", "'bjorn@example.org'", "'Oslo'", "'1985-02-28'", "false", "0.00", _BJORN),
            ("3", "'Chloé'", "NULL", "'Paris'", "'2000-02-29'", "NULL", "-15.25", "NULL"),
            ("4", "'dave'", "'DAVE@example.com'", "'London'", "NULL", "false", "1000.00", _DAVE),
            ("5", "'Eve'", "'eve@example.com'", "NULL", "'1971-01-01'", "true", "NULL", "'{}'"),
            ("6", "'Ada'", "'ada2@example.com'", "'Oslo'", "'1999-12-31'", "true", "120.50", """'{"score": null}'"""),
        ),
    ),
    SqlTable(
        "orders",
        {
            "id": "integer", "customer_id": "integer", "placed": "timestamp", "status": "text", "total": "decimal(10, 2)",
            "note": "text",
        },
        "id",
        (
            ("100", "1", "'2026-01-05 10:00:00+00'", "'paid'", "50.00", "NULL"),
            ("101", "1", "'2026-01-20 23:30:00+00'", "'paid'", "25.50", "'gift'"),
            ("102", "2", "'2026-02-01 00:00:00+00'", "'open'", "10.00", "''"),
            ("103", "4", "'2026-02-14 12:15:30+00'", "'cancelled'", "99.99", "NULL"),
            ("104", "4", "'2026-02-28 23:59:59+00'", "'paid'", "300.00", "'late'"),
            ("105", "NULL", "'2026-03-01 08:00:00+00'", "'open'", "NULL", "'guest'"),
            ("106", "1", "'2026-03-15 09:30:00+00'", "'open'", "50.00", "'gift'"),
            ("107", "9", "'2025-12-31 23:59:59.999+00'", "'paid'", "1.01", "NULL"),
        ),
    ),
    SqlTable(
        "items",
        {"order_id": "integer", "line": "integer", "product": "text", "quantity": "integer", "price": "decimal(8, 2)"},
        "order_id, line",
        (
            ("100", "1", "'tea'", "2", "10.00"),
            ("100", "2", "'cup'", "1", "30.00"),
            ("101", "1", "'tea'", "1", "25.50"),
            ("102", "1", "'pen'", "10", "1.00"),
            ("103", "1", "'cup'", "3", "33.33"),
            ("104", "1", "'desk'", "1", "300.00"),
            ("106", "1", "'tea'", "5", "10.00"),
            ("106", "2", "'pen'", "NULL", "1.00"),
        ),
    ),
    SqlTable(
        "staff",
        {"id": "integer", "name": "text", "boss_id": "integer", "dept": "text", "salary": "decimal(10, 2)", "hired": "date"},
        "id",
        (
            ("1", "'Grace'", "NULL", "'board'", "9000.00", "'2010-01-01'"),
            ("2", "'Alan'", "1", "'dev'", "5000.00", "'2012-05-17'"),
            ("3", "'Barbara'", "1", "'ops'", "5000.00", "'2013-07-01'"),
            ("4", "'Edsger'", "2", "'dev'", "4200.50", "'2015-02-28'"),
            ("5", "'Donald'", "2", "'dev'", "4200.50", "'2016-02-29'"),
            ("6", "'Frances'", "3", "'ops'", "3900.00", "'2020-11-30'"),
            ("7", "'Tony'", "4", "NULL", "NULL", "NULL"),
        ),
    ),
    SqlTable("nothing", {"id": "integer", "t": "text", "n": "integer"}, "id", ()),
)  # fmt: skip


def postgres_statements() -> Iterator[str]:
    for table in TABLES:
        yield table.create(POSTGRES_COLUMN_TYPES).replace("double,", "double precision,")
        if table.rows:
            yield table.insert()


def tailrace_statements() -> Iterator[str]:
    for table in TABLES:
        yield table.create({})
        if table.rows:
            yield table.insert()
    yield f"CREATE TOPIC {TOPIC}"
    yield f"""INSERT INTO {TOPIC} (key, value) VALUES ('1', '{{"n": 1}}'), ('2', '{{"n": 2}}')"""
