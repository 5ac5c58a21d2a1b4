"""What may stand in a route is checked when it is made, and refused with its place."""

import re

import msgspec
import pytest

from tailrace.model.errors import LimitExceededError, SqlError, UnsupportedSqlError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import Operation
from tailrace.model.table import Column, ColumnType
from tailrace.sql.dialect import parse_expression, tokenize
from tailrace.sql.routes.check import check_route
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
        ("flag = true AND n = 'abc'", 17, "can't compare integer and the text 'abc'"),
        ("n = true", 1, "can't compare integer and boolean"),
        ("name < 3", 1, "can't compare text and bigint"),
        ("flag < true", 1, "boolean can't be compared by its order"),
        ("u > u", 1, "uuid can't be compared by its order"),
        ("j = j", 1, "json can't be compared"),
        ("tags = tags", 1, "text[] can't be compared"),
        ("flag AND n", 10, "a condition must be true or false, but this is integer"),
        ("n", 1, "a condition must be true or false, but this is integer"),
        ("flag OR NOT name", 13, "a condition must be true or false, but this is text"),
        ("'x'", 1, "a condition must be true or false, but this is text"),
        ("d = '2023-02-29'", 5, "the text '2023-02-29' is not a valid date"),
        ("ts > 'yesterday'", 6, "the text 'yesterday' is not a valid timestamp"),
        ("u = 'abc'", 5, "the text 'abc' is not a valid uuid"),
        ("n + name > 1", 5, "can't compute with text"),
        ("d + 1 > d", 1, "can't compute with date"),
        ("x % 2 = 0", 1, "% needs whole numbers, but these are double and bigint"),
        ("rate * rate > 1", 1, "the result of decimal(20, 6) and decimal(20, 6) can have more than 38 digits"),
        ("wide > 1", 1, "column 'wide' is decimal(50, 2); routes can use decimals of up to 38 digits"),
        ("n = NULL", 1, "a comparison with NULL is never true; use IS NULL"),
        ("n IN (1, NULL)", 1, "a comparison with NULL is never true; use IS NULL"),
        ("n BETWEEN 1 AND NULL", 1, "a comparison with NULL is never true; use IS NULL"),
        ("flag AND n > . 1.5", 14, "expected a value, found '.'"),
        ("n IN ()", 7, "expected a value, found ')'"),
        ("coalesce(n) = 1", 10, "coalesce() needs at least two values"),
        ("greatest(n) = 1", 10, "greatest() needs at least two values"),
        ("d = date 'soon'", 10, "the text 'soon' is not a valid date"),
        ("d BETWEEN '2024-01-01' AND '2024-1-9'", 28, "the text '2024-1-9' is not a valid date"),
        ("'2024-02-01' BETWEEN d AND '2024-1-9'", 28, "the text '2024-1-9' is not a valid date"),
        ("tags BETWEEN tags AND tags", 1, "text[] can't be compared"),
        ("n LIKE 'a%'", 1, "LIKE compares text, but this is integer"),
        ("name LIKE name", 11, "the pattern of LIKE must be a constant in a route"),
        (r"name LIKE 'a\b'", 11, r"in a pattern, '\\' can only come before %, _ or itself"),
        ("lower(n) = 'a'", 7, "lower() needs text, but this is integer"),
        ("substring(name, n, 2) = 'a'", 17, "in a route substring() needs a constant whole number of at least 1 here"),
        ("substring(name, 2) = 'a'", 11, "in a route substring() needs both a start and a length"),
        ("trim(BOTH 'x' FROM name) = ''", 11, "in a route trim() can only remove spaces"),
        ("extract(dow FROM ts) = 1", 18, "a route can extract year, month, day, hour, minute, not dow"),
        ("extract(hour FROM d) = 1", 19, "extract() needs timestamp, but this is date"),
        ("array_contains(name, 'a')", 16, "array_contains() needs list, but this is text"),
        ("array_contains(nums, id)", 22, "array_contains() searches for bigint in integer[]; cast it to integer"),
        ("greatest(flag, flag)", 10, "greatest() can't be used on boolean"),
        ("CASE WHEN flag THEN 1 ELSE 'a' END = 1", 21, "can't give by one CASE bigint and the text 'a'"),
        ("x::text = '1'", 1, "a route can't cast double to text"),
        ("name::json IS NULL", 1, "a route can't cast to json"),
        ("name::decimal > 1", 1, "the decimal has no precision"),
        ("name::decimal(39, 2) > 1", 1, "the decimal must have 1 to 38 digits"),
        ("messages.n = 1", 1, "only OLD. and NEW. can qualify a column"),
        ("n > 123456789012345678901234567890123456789", 5, "has more digits than routes support"),
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
        ("n = ANY(nums)", "it can't use a subquery"),
        ("count(*) > 1", "it can't use the aggregate count()"),
        ("max(n) > 1", "it can't use the aggregate max()"),
        ("sum(n) OVER () > 1", "it can't use a window function"),
        ("row_number() OVER (ORDER BY n) = 1", "it can't use a window function"),
        ("ts > now()", "the result of now() can change from call to call"),
        ("ts > current_timestamp", "can change from call to call"),
        ("d = current_date", "can change from call to call"),
        ("random() > 0.5", "can change from call to call"),
        ("u = gen_random_uuid()", "can change from call to call"),
        ("md5(name) = 'x'", "a route can't use the function md5(); use abs, array_contains, "),
        ("pg_sleep(10) IS NULL", "a route can't use the function pg_sleep()"),
        ("java_method('java.lang.Runtime', 'exit') = 'x'", "a route can't use the function java_method()"),
        ("n = ?", "write the value instead of a parameter"),
        ("n = :limit", "write the value instead of a parameter"),
        ("name ILIKE 'a%'", "a route can't use ILIKE; compare lower(...) by LIKE"),
        ("name ~ 'a'", "regular expressions differ between engines; use LIKE"),
        ("concat(name, 'x') = 'ax'", "use ||"),
        ("j ->> 'a' = 'x'", "a route can't read JSON"),
        ("ts > ts - interval '1 day'", "a route can't use intervals"),
        ("n BETWEEN SYMMETRIC 2 AND 1", "can't be used in a route"),
        ("(n, x) = (1, 2)", "can't be used in a route"),
        ("nums[1] = 1", "can't be used in a route"),
        ("n & 1 = 1", "can't be used in a route"),
        ("n ^ 2 = 4", "a route can't use the function power()"),
        ("name COLLATE \"C\" = 'a'", "a route can't use the function collate()"),
    ],
)
def test_what_has_no_one_meaning_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=re.escape(message)) as raised:
        checked(text)
    assert raised.value.line == 1


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
    assert checked("FLAG AND New.N = 1") == checked("flag AND NEW.n = 1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "can't partition by double: it has no exact text"),
        ("j", "can't partition by json"),
        ("tags", r"can't partition by text\[\]"),
        ("b", "can't partition by bytes"),
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
        check_route(parse_expression(tokenize(text), text), (), INSERT, TABLE, limits)


def test_a_route_has_a_bounded_depth() -> None:
    assert checked(" AND ".join(["n = 1"] * 200)).where is not None
    with pytest.raises(SqlError, match="nested more than 60 levels deep"):
        checked("n" + " + 1" * 100 + " > 0")


def test_a_column_whose_name_spark_would_replace_is_refused() -> None:
    table = msgspec.structs.replace(TABLE, columns=(*TABLE.columns, Column("${spark.master}", ColumnType("text"))))
    with pytest.raises(SqlError, match="has a name that Spark would substitute"):
        checked("n = 1", table=table)
