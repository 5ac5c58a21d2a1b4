"""What a condition means on a row: true, false, null or failed. Written out by hand, asked of the dry run."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tailrace.model.errors import LimitExceededError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import Operation
from tailrace.model.table import Column, ColumnType
from tailrace.sql.routes.compile import compile_for_spark
from tailrace.sql.routes.dry_run import dry_run
from tests.support.route_cases import LEAST, MOST, TABLE, Images, checked, event, hard_rows, row

FAILED = "failed"


def outcome(text: str, new: dict[str, Any], old: dict[str, Any] | None = None, operation: Operation = "update") -> object:
    images = Images(row(**(old or {})), row(**new))
    route = checked(text, operations=(operation,))
    (found,) = dry_run(route, TABLE, [event(images, operation)], DEFAULT_LIMITS)
    return FAILED if found.failed else found.matches


@pytest.mark.parametrize(
    ("text", "values", "meaning"),
    [
        ("flag = true AND id = 42", {"flag": True, "id": 42}, True),
        ("flag = true AND id = 42", {"flag": False, "id": 42}, False),
        ("flag = true AND id = 42", {"flag": None, "id": 42}, None),
        ("flag = true AND id = 42", {"flag": None, "id": 1}, False),
        # The division of whole numbers is whole, and by zero it fails.
        ("n / 2 = 2", {"n": 5}, True),
        ("n / 2 = -2", {"n": -5}, True),
        ("1 / n > 0", {"n": 0}, FAILED),
        ("1 / n > 0", {"n": None}, None),
        ("n / 0 > 0", {"n": None}, None),
        ("x / 0 > 0", {"x": 1.0}, FAILED),
        ("n % 0 = 0", {"n": 1}, FAILED),
        ("n % 3 = -1", {"n": -4}, True),
        ("id % -1 = 0", {"id": LEAST}, True),
        # A guard keeps a failure from counting, on either side.
        ("n <> 0 AND 10 / n > 1", {"n": 0}, False),
        ("10 / n > 1 AND n <> 0", {"n": 0}, False),
        ("n = 0 OR 10 / n > 1", {"n": 0}, True),
        ("10 / n > 1 OR n = 0", {"n": 0}, True),
        ("10 / n > 1 AND flag", {"n": 0, "flag": None}, FAILED),
        ("NOT (n <> 0 AND 10 / n > 1)", {"n": 0}, True),
        ("CASE WHEN n = 0 THEN false ELSE 10 / n > 1 END", {"n": 0}, False),
        ("CASE WHEN 10 / n > 1 THEN true ELSE true END", {"n": 0}, FAILED),
        ("coalesce(flag, 10 / n > 1)", {"n": 0, "flag": True}, True),
        ("coalesce(flag, 10 / n > 1)", {"n": 0}, FAILED),
        ("(10 / n) IS NULL", {"n": 0}, FAILED),
        ("(10 / n) IS DISTINCT FROM 1", {"n": 0}, FAILED),
        ("nullif(10 / n, 1) IS NULL", {"n": 0}, FAILED),
        ("n IN (1, CAST(name AS integer))", {"n": 1, "name": "x"}, True),
        ("n IN (CAST(name AS integer), 1)", {"n": 1, "name": "x"}, True),
        ("n IN (1, CAST(name AS integer))", {"n": 2, "name": "x"}, FAILED),
        # Integers have the width of their type.
        ("n + 1 > n", {"n": 2**31 - 1}, FAILED),
        ("n + 1::bigint > n", {"n": 2**31 - 1}, True),
        ("id + 1 > 0", {"id": MOST}, FAILED),
        ("-id > 0", {"id": LEAST}, FAILED),
        ("abs(id) > 0", {"id": LEAST}, FAILED),
        ("id = -9223372036854775808", {"id": LEAST}, True),
        ("id < 9223372036854775808", {"id": MOST}, True),
        ("id * 2 > 0", {"id": MOST}, FAILED),
        ("small * 1000000 = 32767000000", {"small": 32767}, FAILED),
        ("small * 1000000::bigint = 32767000000", {"small": 32767}, True),
        # Decimals are exact.
        ("amount + 0.1 = 0.3", {"amount": Decimal("0.20")}, True),
        ("x + 0.1 = 0.3", {"x": 0.2}, False),
        ("amount * 3 = 299999999.97", {"amount": Decimal("99999999.99")}, True),
        ("amount = 1.50", {"amount": Decimal("1.50")}, True),
        ("rate > 12345678901234.1234565", {"rate": Decimal("12345678901234.123456")}, False),
        ("coalesce(amount, 0) > 1", {"amount": Decimal("1.50")}, True),
        # Casts of text.
        ("name::integer = 5", {"name": "5"}, True),
        ("name::integer = 5", {"name": "+5"}, True),
        ("name::integer = 5", {"name": "5.5"}, FAILED),
        ("name::integer = 5", {"name": " 5"}, True),
        ("name::integer = 5", {"name": "5\n"}, True),
        ("name::integer = 1000", {"name": "1e3"}, FAILED),
        ("name::integer = 5", {"name": None}, None),
        ("name::integer = 3000000000", {"name": "3000000000"}, FAILED),
        ("name::bigint = 3000000000", {"name": "3000000000"}, True),
        ("name::double precision = 1000", {"name": "1e3"}, True),
        ("name::decimal(5, 2) = 1.25", {"name": "1.25"}, True),
        ("name::decimal(5, 2) = 1.26", {"name": "1.255"}, True),
        ("name::decimal(5, 2) > 0", {"name": "1000"}, FAILED),
        ("name::boolean", {"name": "True"}, True),
        ("name::boolean", {"name": "yes"}, True),
        ("name::boolean", {"name": "maybe"}, FAILED),
        ("name::date = '2024-02-29'", {"name": "2024-02-29"}, True),
        ("name::date = '2024-02-29'", {"name": "2023-02-29"}, FAILED),
        ("name::timestamptz = '2024-02-29 10:00:00'", {"name": "2024-02-29T10:00:00Z"}, True),
        ("x::integer = 3", {"x": 2.9}, True),
        ("x::integer = 2", {"x": 2.5}, True),
        ("x::bigint > 0", {"x": 1e19}, FAILED),
        ("amount::integer = 3", {"amount": Decimal("2.50")}, True),
        ("amount::decimal(5, 1) = 2.5", {"amount": Decimal("2.45")}, True),
        ("id::smallint > 0", {"id": 40000}, FAILED),
        ("amount::text = '1.50'", {"amount": Decimal("1.50")}, True),
        # Text is compared by its bytes.
        ("name = 'abc'", {"name": "abc "}, False),
        ("name < 'a'", {"name": "Z"}, True),
        ("name > 'z'", {"name": "é"}, True),
        ("name LIKE 'a%'", {"name": "a\nb"}, True),
        (r"name LIKE 'a\_b'", {"name": "axb"}, False),
        (r"name LIKE 'a\_b'", {"name": "a_b"}, True),
        (r"name LIKE 'a\b'", {"name": "ab"}, True),
        ("name ILIKE 'A%'", {"name": "abc"}, True),
        ("name LIKE ANY (ARRAY['x%', 'a%'])", {"name": "abc"}, True),
        (r"name ~ '^[a-c]+\d?$'", {"name": "abc5"}, True),
        (r"name ~ '^[a-c]+$'", {"name": "abc\n"}, False),
        ("name ~* 'BC$'", {"name": "abc"}, True),
        ("upper(name) = 'STRAßE'", {"name": "straße"}, True),
        ("name LIKE 'a!%' ESCAPE '!'", {"name": "a%"}, True),
        ("name NOT LIKE 'a%'", {"name": None}, None),
        ("length(name) = 2", {"name": "é😀"}, True),
        ("trim(name) = 'a'", {"name": "  a "}, True),
        ("trim(name) = 'a'", {"name": "\ta"}, False),
        ("substring(name, 2, 2) = 'bc'", {"name": "abcd"}, True),
        ("name || 'x' = 'ax'", {"name": None}, None),
        ("lower(name) = 'é'", {"name": "É"}, True),
        ("name = 'it''s ${user}'", {"name": "it's ${user}"}, True),
        # Times are UTC.
        ("ts >= '2024-01-01'", {"ts": datetime(2024, 1, 1, tzinfo=UTC)}, True),
        ("ts = '2024-01-01 02:00:00+02:00'", {"ts": datetime(2024, 1, 1, tzinfo=UTC)}, True),
        ("extract(year FROM d) = 2024", {"d": date(2024, 2, 29)}, True),
        ("d < ts", {"d": date(2024, 2, 29), "ts": datetime(2024, 2, 29, 0, 0, 1, tzinfo=UTC)}, True),
        ("u = '6F9619FF-8B86-D011-B42D-00CF4FC964FF'", {"u": "6f9619ff-8b86-d011-b42d-00cf4fc964ff"}, True),
        ("ts + interval '1 month' = '2024-02-29'", {"ts": datetime(2024, 1, 31, tzinfo=UTC)}, True),
        ("ts - '2024-01-01' > interval '1 day'", {"ts": datetime(2024, 1, 3, tzinfo=UTC)}, True),
        ("date_trunc('month', ts) = '2024-01-01'", {"ts": datetime(2024, 1, 3, tzinfo=UTC)}, True),
        ("extract(isodow FROM d) IN (6, 7)", {"d": date(2024, 2, 25)}, True),
        ("d + 1 = '2024-03-01'", {"d": date(2024, 2, 29)}, True),
        # Arrays.
        ("'a' = ANY (tags)", {"tags": ["a", None]}, True),
        ("'b' = ANY (tags)", {"tags": ["a", None]}, None),
        ("10 / n = ANY (nums)", {"n": 0, "nums": []}, FAILED),
        ("name SIMILAR TO '(a|b)%'", {"name": "bcd"}, True),
        ("'b' = ANY (tags)", {"tags": ["a"]}, False),
        ("'b' = ANY (tags)", {"tags": None}, None),
        ("cardinality(nums) = 2", {"nums": [1, None]}, True),
        ("nums[2] IS NULL", {"nums": [1, None]}, True),
        ("nums[2:] = ARRAY[2, 3]", {"nums": [1, 2, 3]}, True),
        ("tags @> ARRAY['a']", {"tags": ["a", "b"]}, True),
        # JSON.
        ("j ->> 'type' = 'x'", {"j": {"type": "x"}}, True),
        ("j -> 'a' ->> 'b' = '1'", {"j": {"a": {"b": 1}}}, True),
        ("(j ->> 'n')::integer > 5", {"j": {"n": 7}}, True),
        ("(j ->> 'n')::integer > 5", {"j": {"n": "x"}}, FAILED),
        ("(j -> 'n') IS NULL", {"j": {"n": None}}, False),
        ("j ->> 'n' IS NULL", {"j": {"n": None}}, True),
        # Nulls.
        ("n IS NULL", {}, True),
        ("n IS DISTINCT FROM 1", {}, True),
        ("n IN (1, 2)", {}, None),
        ("n NOT IN (1, 2)", {"n": 3}, True),
        ("flag IS NOT TRUE", {}, True),
        ("greatest(n, 1) = 1", {}, True),
    ],
)
def test_a_condition_is_true_false_null_or_failed(text: str, values: dict[str, Any], meaning: object) -> None:
    assert outcome(text, values) == meaning


def test_a_bare_column_is_that_of_the_row_which_stays_or_goes() -> None:
    route = checked("n = 1", operations=("insert", "update", "delete"))
    one, two = row(id=1, n=1), row(id=1, n=2)
    changes = [
        event(Images(None, one), "insert"),
        event(Images(two, one), "update"),
        event(Images(one, two), "update"),
        event(Images(one, None), "delete"),
    ]
    outcomes = dry_run(route, TABLE, changes, DEFAULT_LIMITS)
    assert [found.matches for found in outcomes] == [True, True, False, True]


def test_old_and_new_are_the_two_images() -> None:
    assert outcome("OLD.n <> NEW.n AND OLD.n = 1", {"n": 2}, {"n": 1}) is True
    assert outcome("OLD.n IS DISTINCT FROM n", {"n": None}, {"n": 1}) is True
    assert outcome("OLD.n IS DISTINCT FROM n", {"n": None}, {"n": None}) is False


def test_a_partition_expression_that_fails_counts_where_the_condition_is_true() -> None:
    route = checked("flag", ["CAST(name AS integer)"])
    rows = [row(flag=flag, name="x") for flag in (True, False, None)] + [row(flag=True, name="5")]
    changes = [event(Images(None, new), "insert") for new in rows]
    outcomes = dry_run(route, TABLE, changes, DEFAULT_LIMITS)
    assert [(found.matches, found.failed) for found in outcomes] == [
        (None, True),
        (False, False),
        (None, False),
        (True, False),
    ]
    assert outcomes[-1].key_values == [5]


def test_a_simple_filter_is_simple_in_spark_s_sql() -> None:
    compiled = compile_for_spark(checked("flag = true AND id = 42"), TABLE, DEFAULT_LIMITS)
    assert compiled.condition == "((new.`flag` = TRUE) AND (new.`id` = 42))"
    assert compiled.failure == "FALSE"
    assert compiled.key is None
    assert compiled.row.startswith("STRUCT<`id`: BIGINT, `small`: SMALLINT, `n`: INT, `x`: DOUBLE, `amount`: DECIMAL(10, 2)")
    assert "`tags`: ARRAY<STRING>" in compiled.row
    assert "`wide`: STRING" in compiled.row


def test_a_part_of_json_fails_only_where_its_text_could_matter() -> None:
    def fails(text: str) -> bool:
        return compile_for_spark(checked(text), TABLE, DEFAULT_LIMITS).failure != "FALSE"

    for text in ("j ->> 'a' = 'x'", "'x' <> (j ->> 'a')", "j -> 'a' ->> 'b' IN ('x', 'y')", "j ->> 'a' IS NULL"):
        assert not fails(text), text
    for text in ("j ->> 'a' = '1'", "j ->> 'a' = name", "j ->> 'a' IN ('x', '{}')", "j ->> 'a' < 'x'", "(j ->> 'a')::int = 1"):
        assert fails(text), text


def test_no_text_of_a_user_is_taken_for_spark_s_own() -> None:
    text = "name IN ('${spark.master}', 'it''s', 'back\\slash')"
    compiled = compile_for_spark(checked(text), TABLE, DEFAULT_LIMITS)
    assert "${" not in compiled.condition
    assert compiled.condition == r"(new.`name` IN ('\u0024{spark.master}', 'it\'s', 'back\\slash'))"


def test_a_name_is_quoted_as_spark_does() -> None:
    table = msgspec.structs.replace(TABLE, columns=(Column('a`b"c', ColumnType("bigint")),))
    route = checked('"a`b""c" = 1', table=table)
    assert compile_for_spark(route, table, DEFAULT_LIMITS).condition == '(new.`a``b"c` = 1)'
    change = event(Images(None, {}), "insert")._replace(new=b'{"a`b\\"c":1}')
    assert dry_run(route, table, [change], DEFAULT_LIMITS)[0].matches is True


def test_the_size_of_the_compiled_sql_is_bounded() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, route_sql_bytes=1000)
    nested = "name::integer IS NULL"
    for _ in range(4):
        nested = f"({nested}) IS NULL"
    with pytest.raises(LimitExceededError, match="route_sql_bytes"):
        compile_for_spark(checked(nested), TABLE, limits)
    assert compile_for_spark(checked("n = 1"), TABLE, limits).condition


def test_a_route_without_a_condition_takes_everything() -> None:
    changes = [event(Images(None, new), "insert") for new in hard_rows()]
    assert all(found.matches is True and not found.failed for found in dry_run(checked(None), TABLE, changes, DEFAULT_LIMITS))
