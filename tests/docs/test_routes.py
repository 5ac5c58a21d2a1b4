"""`docs/reference/routes.md` says what routes do, and nothing else."""

import re
from typing import get_args

import pytest
from sqlglot import exp

from tailrace.model.ids import Cursor, RouteId
from tailrace.model.route import Operation, PayloadMode
from tailrace.model.table import ColumnKind, ColumnType
from tailrace.sql.dialect import parse_expression, tokenize
from tailrace.sql.parse import parse
from tailrace.sql.routes.errors import FUNCTIONS
from tailrace.sql.routes.expression import cast_operator
from tailrace.sql.routes.functions import HANDLERS
from tailrace.sql.routes.statements import COLUMNS
from tailrace.wire.routing import ChangeEvent, headers_of, payload_of
from tests.docs.tables import REFERENCE, named_rows
from tests.support.route_cases import checked

PAGE = (REFERENCE / "routes.md").read_text()
CHANGE = ChangeEvent("update", b'{"id":1}', b'{"id":1,"body":"hi","stars":2}', b'{"id":1,"body":"ho","stars":2}', 0, Cursor(1))


def rows_under(head: str) -> dict[str, list[str]]:
    """The table that begins with these column names."""
    _, found, rest = PAGE.partition(f"\n| {head} |")
    assert found
    table = rest.partition("\n\n")[0]
    rows = (row.strip("| ").split(" | ") for row in table.splitlines()[2:])
    return {cells[0].strip(" `|"): [cell.strip(" |") for cell in cells[1:]] for cells in rows}


def test_every_function_is_documented_with_an_example_that_works() -> None:
    documented = rows_under("Function | As in |")
    assert sorted(documented) == sorted(FUNCTIONS)
    for name, cells in documented.items():
        assert name in cells[0]
        assert checked(cells[0].strip("`")).where is not None


def test_no_function_is_left_out() -> None:
    shown = {
        type(node)
        for cells in rows_under("Function | As in |").values()
        for text in [cells[0].strip("`")]
        for node in parse_expression(tokenize(text), text).walk()
    }
    assert set(HANDLERS) - shown == {exp.DPipe}


def test_every_cast_is_documented() -> None:
    types = [
        ColumnType(kind, precision=10, scale=2) if kind == "decimal" else ColumnType(kind) for kind in get_args(ColumnKind)
    ]
    possible = {
        source.kind: {
            target.kind
            for target in types
            if cast_operator(source, target) is not None and (source.kind != target.kind or source.kind == "decimal")
        }
        for source in types
    }
    documented = {kind: set(re.findall(r"`(\w+)`", cells[0])) for kind, cells in rows_under("Cast from | To |").items()}
    assert documented == {kind: targets for kind, targets in possible.items() if targets}


def test_every_payload_is_shown_as_it_is() -> None:
    assert f"`{(CHANGE.old or b'').decode()}` to `{(CHANGE.new or b'').decode()}`" in PAGE
    shown = {name: cells[0].strip("`") for name, cells in rows_under("Payload | Value of the message").items()}
    assert shown == {payload: payload_of(CHANGE, payload).decode() for payload in get_args(PayloadMode)}


def test_every_header_is_documented() -> None:
    assert list(rows_under("Header |")) == [name for name, _ in headers_of(CHANGE, RouteId(1), "t", "key")]


def test_every_column_of_a_dry_run_is_documented() -> None:
    assert list(rows_under("Column |")) == [column.name for column in COLUMNS]


def test_every_operation_is_documented() -> None:
    assert set(rows_under("Operation | Has")) == set(get_args(Operation))


@pytest.mark.parametrize("example", re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_every_example_is_a_statement(example: str) -> None:
    assert parse(example)


def test_the_limits_of_routes_are_limits() -> None:
    limits = named_rows(REFERENCE / "limits.md")
    assert {name for name in re.findall(r"`(\w+)`", PAGE) if name.startswith(("routes", "explained"))} <= set(limits)
