"""EXPLAIN in front of statements: its options, and what it can stand before."""

import pytest

from tailrace.model.errors import SqlError
from tailrace.sql.parse import kind_of, parse
from tailrace.sql.statements import AddRouteStatement, ExplainStatement, Query, Write


def only(text: str) -> ExplainStatement:
    (statement,) = parse(text)
    assert isinstance(statement, ExplainStatement)
    return statement


@pytest.mark.parametrize(
    ("prefix", "analyze", "form", "timing"),
    [
        ("EXPLAIN", False, "text", False),
        ("explain analyze", True, "text", True),
        ("EXPLAIN (ANALYZE)", True, "text", True),
        ("EXPLAIN (ANALYZE, FORMAT JSON)", True, "json", True),
        ("EXPLAIN (FORMAT json, COSTS OFF)", False, "json", False),
        ("EXPLAIN (ANALYZE on, TIMING off)", True, "text", False),
        ("EXPLAIN (ANALYZE false, FORMAT TEXT)", False, "text", False),
    ],
)
def test_options_are_read_as_postgresql_reads_them(prefix: str, analyze: bool, form: str, timing: bool) -> None:
    found = only(f"{prefix} SELECT 1")
    assert (found.analyze, found.format, found.timing) == (analyze, form, timing)
    assert isinstance(found.statement, Query)
    assert found.statement.text == "SELECT 1"


def test_what_is_explained_keeps_its_place_and_its_parameters() -> None:
    first, second, third = parse("EXPLAIN\n  SELECT ?;\nEXPLAIN ANALYZE UPDATE t SET a = ? WHERE b = ?; SELECT 1")
    assert isinstance(first, ExplainStatement)
    assert isinstance(second, ExplainStatement)
    assert isinstance(third, Query)
    assert (first.line, first.column, first.statement.line, first.statement.column) == (1, 1, 2, 3)
    assert first.text == "EXPLAIN\n  SELECT ?"
    assert (second.line, second.statement.column) == (3, 17)
    assert isinstance(second.statement, Write)
    assert (first.parameters, second.parameters) == (("1",), ("1", "2"))
    assert kind_of(second) == "explain"


@pytest.mark.parametrize("text", ["EXPLAIN (SELECT 1)", "EXPLAIN ((SELECT 1) UNION (SELECT 2))", "EXPLAIN (VALUES (1))"])
def test_a_query_in_brackets_is_not_taken_for_options(text: str) -> None:
    assert isinstance(only(text).statement, Query)


def test_a_dry_run_of_a_route_is_still_one() -> None:
    (statement,) = parse("EXPLAIN ALTER TOPIC a ADD SOURCE b ON INSERT")
    assert isinstance(statement, AddRouteStatement)


@pytest.mark.parametrize(
    ("text", "sqlstate", "message"),
    [
        ("EXPLAIN", "42601", "expected the statement to explain"),
        ("EXPLAIN (NONSENSE) SELECT 1", "42601", 'unrecognized EXPLAIN option "nonsense"'),
        ("EXPLAIN (FORMAT XML) SELECT 1", "0A000", "use TEXT or JSON"),
        ("EXPLAIN (FORMAT csv) SELECT 1", "22023", "use TEXT or JSON"),
        ("EXPLAIN (TIMING) SELECT 1", "22023", "EXPLAIN option TIMING requires ANALYZE"),
        ("EXPLAIN (COSTS) SELECT 1", "0A000", "there are no costs"),
        ("EXPLAIN (BUFFERS) SELECT 1", "0A000", "BUFFERS is not supported"),
        ("EXPLAIN VERBOSE SELECT 1", "0A000", "VERBOSE is not supported"),
        ("EXPLAIN (ANALYZE maybe) SELECT 1", "42601", "analyze requires a Boolean value"),
        ("EXPLAIN (ANALYZE SELECT 1", "42601", "expected an option"),
        ("EXPLAIN CREATE TOPIC a", "0A000", "can't be explained"),
        ("EXPLAIN EXPLAIN SELECT 1", "42601", "expected"),
    ],
)
def test_what_can_not_be_explained_is_refused_with_a_code(text: str, sqlstate: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        parse(text)
    assert caught.value.sqlstate == sqlstate
