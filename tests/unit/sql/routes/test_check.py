"""What may stand in a route is checked when it is made, and refused with its place."""

import re

import msgspec
import pytest

from tailrace.model.errors import LimitExceededError, SqlError, UnsupportedSqlError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import Operation
from tailrace.model.table import Column, ColumnType
from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.routes.check import check_route, conjuncts_of
from tailrace.sql.routes.compile import column_text, compile_for_spark, parts_in_python
from tailrace.sql.spark.render import SparkRenderer
from tailrace.sql.statements import ExpressionText
from tests.support.route_cases import TABLE, checked

INSERT: tuple[Operation, ...] = ("insert",)
UPDATE: tuple[Operation, ...] = ("update",)
DELETE: tuple[Operation, ...] = ("delete",)
ALL: tuple[Operation, ...] = ("insert", "update", "delete")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("flag AND nme = 'x'", 10, "table 'chat.messages' has no column 'nme'; did you mean 'name'?"),
        ("zzzzzz = 1", 1, "table 'chat.messages' has no column 'zzzzzz'"),
        ("flag = true AND n = 'abc'", 21, 'invalid input syntax for type integer: "abc"'),
        ("n = true", 3, "operator does not exist: integer = boolean"),
        ("name < 3", 6, "operator does not exist: text < integer"),
        ("flag AND n", 10, "argument of AND must be type boolean, not type integer"),
        ("n", 1, "argument of WHERE must be type boolean, not type integer"),
        ("flag OR NOT name", 13, "argument of NOT must be type boolean, not type text"),
        ("'x'", 1, 'invalid input syntax for type boolean: "x"'),
        ("d = '2023-02-29'", 5, 'date/time field value out of range: "2023-02-29"'),
        ("u = 'abc'", 5, 'invalid input syntax for type uuid: "abc"'),
        ("n + name > 1", 3, "operator does not exist: integer + text"),
        ("x % 2 = 0", 3, "operator does not exist: double precision % integer"),
        ("flag AND n > . 1.5", 14, 'syntax error at or near "."'),
        ("n IN ()", 7, 'syntax error at or near ")"'),
        ("d = date 'soon'", 10, 'invalid input syntax for type date: "soon"'),
        ("n LIKE 'a%'", 3, "operator does not exist: integer ~~ unknown"),
        ("lower(n) = 'a'", 1, "function lower(integer) does not exist"),
        ("name LIKE 'a\\'", 11, "LIKE pattern must not end with escape character"),
        ("name ~ 'a('", 8, "parentheses () not balanced"),
        ("CASE WHEN flag THEN 1 ELSE 'a' END = 1", 28, 'invalid input syntax for type integer: "a"'),
        ("array_contains(tags, 'a')", 1, "PostgreSQL has no function array_contains(); write 'x' = ANY (tags)"),
        ("ends_with(name, 'a')", 1, "PostgreSQL has no function ends_with()"),
        ("messages.n = 1", 1, "only OLD. and NEW. can qualify a column"),
        ("'é' = name AND nme = 1", 16, "has no column 'nme'"),
        ("TRY_CAST(name AS integer) = 1", 15, 'syntax error at or near "AS"'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as raised:
        checked(text)
    assert (raised.value.line, raised.value.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n IN (SELECT 1)", "it can't use a subquery"),
        ("n = (SELECT 1)", "it can't use a subquery"),
        ("EXISTS (SELECT 1)", "it can't use a subquery"),
        ("count(*) > 1", "it can't use the aggregate count()"),
        ("max(n) > 1", "it can't use the aggregate max()"),
        ("sum(n) OVER () > 1", "it can't use a window function"),
        ("row_number() OVER (ORDER BY n) = 1", "it can't use a window function"),
        ("ts > now()", "the result of now() can change from call to call"),
        ("ts > current_timestamp", "can change from call to call"),
        ("d = current_date", "can change from call to call"),
        ("random() > 0.5", "can change from call to call"),
        ("u = gen_random_uuid()", "can change from call to call"),
        ("n = $1", "write the value instead of a parameter"),
        ("u = uuidv7()", "can change from call to call"),
        ("age(ts) > interval '1 day'", "can change from call to call"),
        ("ts > 'today'", "can change from call to call"),
        (r"name ~ '(a)\1'", "not supported"),
        ("n = 1 AND regexp_replace(name, 'a(?=b)', '') = 'b'", "not supported"),
    ],
)
def test_what_has_no_one_meaning_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=re.escape(message)) as raised:
        checked(text)
    assert raised.value.line == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("to_char(ts, 'Mon YYYY') = 'Jan 2026'", "in a route to_char can have the fields YYYY, MM, DD, HH24, MI, SS"),
        ("to_char(ts, 'DDDD') = '0313'", "in a route to_char can have the fields"),
        ("initcap(name) = 'Abc'", "a route can't use the function initcap(text)"),
        ("name LIKE name", "in a route the pattern of LIKE must be a constant"),
        ("name ILIKE 'é%'", "in a route ILIKE can only have letters of ASCII"),
        ("j = '{}'", "a route can't use"),
        ("j IS NULL", "only a part of JSON by its name can be tested for null"),
        ("j ->> name = 'x'", "in a route a key or an index of JSON must be a constant"),
        ("amount / 3 > 0.5", "a route can't use the operator numeric / numeric"),
        ("rate * rate > 1", "could have more than 38 digits"),
        ("wide > 1", "this numeric can have any number of digits"),
        ("name::decimal > 1", "this numeric can have any number of digits"),
        ("coalesce(amount, 0)::text = '1'", "the numbers can have several scales"),
        ("x::text = '1'", "a route can't cast double precision to text"),
        ("extract(century FROM ts) = 21", "a route can't extract century"),
        ("ts + CASE WHEN flag THEN interval '1 day' END > ts", "must be a constant"),
        ("ts AT TIME ZONE 'Europe/Berlin' > '2026-01-01'", "a route can only use the time zone UTC"),
        ("x ^ 2 = 4", "a route can't use the operator double precision ^ double precision"),
    ],
)
def test_what_spark_can_t_compute_is_left_to_python(text: str, message: str) -> None:
    route = checked(f"n = 1 AND ({text}) AND flag")
    _, part, _ = conjuncts_of(route.where)
    with pytest.raises(UnsupportedError) as raised:
        SparkRenderer(column_text, DEFAULT_LIMITS.route_sql_bytes).render(part)
    assert message in raised.value.message
    compiled = compile_for_spark(route, TABLE, DEFAULT_LIMITS)
    assert compiled.condition == "((new.`n` = 1) AND new.`flag`)"
    assert compiled.failure == f"({compiled.condition} IS NULL)"
    assert compiled.python is not None
    assert compiled.python.conjuncts == (1,)
    assert parts_in_python(route, compiled) == [text]


def test_places_are_counted_over_lines() -> None:
    with pytest.raises(SqlError, match=r"^line 3, column 8: "):
        checked("flag\n  AND n > 1\n   AND nme = 'x'")


@pytest.mark.parametrize(
    ("operations", "legal", "illegal"),
    [
        (INSERT, ["NEW.n = 1", "n = 1"], ["OLD.n = 1"]),
        (UPDATE, ["NEW.n = 1", "OLD.n <> n", "n = 1"], []),
        (DELETE, ["OLD.n = 1", "n = 1"], ["NEW.n = 1"]),
        (("insert", "update"), ["NEW.n = 1"], ["OLD.n = 1"]),
        (("update", "delete"), ["OLD.n = 1"], ["NEW.n = 1"]),
        (ALL, ["n = 1"], ["OLD.n = 1", "NEW.n = 1"]),
    ],
)
def test_old_and_new_stand_where_every_operation_has_them(
    operations: tuple[Operation, ...], legal: list[str], illegal: list[str]
) -> None:
    for text in legal:
        checked(text, operations=operations)
    for text in illegal:
        with pytest.raises(SqlError, match=r"which has no row (before|after) it"):
            checked(text, operations=operations)


def test_names_are_found_in_any_case() -> None:
    forms = ("FLAG AND New.N = 1", "flag AND NEW.n = 1", '"Flag" AND new."N" = 1')
    assert len({compile_for_spark(checked(text), TABLE, DEFAULT_LIMITS).condition for text in forms}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "can't partition by double precision: it has no unique text form"),
        ("j", "can't partition by jsonb"),
        ("tags", r"can't partition by text\[\]"),
        ("b", "can't partition by bytea"),
        ("ts - ts", "can't partition by interval"),
        ("coalesce(amount, 1)", "can't partition by numbers of several scales"),
        ("CAST(name AS decimal)", "can't partition by numbers of several scales"),
        ("amount / 3", "can't partition by numbers of several scales"),
        ("CAST(name AS decimal(20, 8))", "has more than 6 digits after the decimal point"),
        ("1", "a constant would send everything to one partition"),
        ("1 + 1", "a constant would send everything to one partition"),
        ("nme", "did you mean 'name'"),
        ("count(*)", "aggregate"),
    ],
)
def test_partition_expressions_are_checked_too(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        checked(None, [text])


def test_a_route_has_a_bounded_size() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, route_expressions=10)
    text = " AND ".join(["n = 1"] * 5)
    with pytest.raises(LimitExceededError, match="more than route_expressions allows"):
        check_route(ExpressionText(text), (), INSERT, TABLE, limits)
    long = ExpressionText("1" + " + 1" * 500_000, tokens=1_000_001)
    with pytest.raises(LimitExceededError, match="more than route_expressions allows"):
        check_route(long, (), INSERT, TABLE, DEFAULT_LIMITS)


def test_a_route_has_a_bounded_depth() -> None:
    assert checked(" AND ".join(["n = 1"] * 200)).where is not None
    with pytest.raises(SqlError, match="nested more than 60 levels deep"):
        checked("n" + " + 1" * 100 + " > 0")
    with pytest.raises(SqlError, match="nested too deeply"):
        checked("n" + " + 1" * 5000 + " > 0")


def test_a_column_whose_name_spark_would_replace_is_refused() -> None:
    table = msgspec.structs.replace(TABLE, columns=(*TABLE.columns, Column("${spark.master}", ColumnType("text"))))
    with pytest.raises(SqlError, match="has a name that Spark would substitute"):
        checked("n = 1", table=table)
