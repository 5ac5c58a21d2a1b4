"""`docs/reference/routes.md` says what routes do, and nothing else."""

import re
from typing import get_args

import pytest

from tailrace.model.ids import Cursor, RouteId
from tailrace.model.route import Operation, PayloadMode
from tailrace.sql.parse import parse
from tailrace.sql.routes.statements import COLUMNS
from tailrace.sql.spark.arrays import ARRAYS
from tailrace.sql.spark.json import JSON
from tailrace.sql.spark.numbers import NUMBERS
from tailrace.sql.spark.patterns import PATTERNS
from tailrace.sql.spark.texts import TEXTS
from tailrace.sql.spark.times import TIMES
from tailrace.wire.routing import ChangeEvent, headers_of, payload_of
from tests.docs.tables import REFERENCE, named_rows

PAGE = (REFERENCE / "routes.md").read_text()
CHANGE = ChangeEvent("update", b'{"id":1}', b'{"id":1,"body":"hi","stars":2}', b'{"id":1,"body":"ho","stars":2}', 0, Cursor(1))


def rows_under(head: str) -> dict[str, list[str]]:
    """The table that begins with these column names."""
    _, found, rest = PAGE.partition(f"\n| {head} |")
    assert found
    table = rest.partition("\n\n")[0]
    rows = (re.split(r" (?<!\\)\| ", row.strip("| ")) for row in table.splitlines()[2:])
    return {cells[0].strip(" `|"): [cell.strip(" |") for cell in cells[1:]] for cells in rows}


SUBJECTS = {
    "Numbers": NUMBERS,
    "Texts and bytes": TEXTS,
    "Patterns": PATTERNS,
    "Dates and times": TIMES,
    "Arrays": ARRAYS,
    "JSON": JSON,
}


def test_every_function_and_operator_is_documented() -> None:
    documented = rows_under("Values | Operators | Functions")
    assert list(documented) == list(SUBJECTS)
    for subject, entries in SUBJECTS.items():
        operators, functions = documented[subject]
        assert re.findall(r"`(\w+)`", functions) == sorted({key.partition("(")[0] for key in entries if "(" in key})
        if subject != "Patterns":
            shown = {operator.replace("\\", "") for operator in re.findall(r"`([^`]+)`", operators)}
            names = {key.split()[-2] for key in entries if "(" not in key}
            assert shown == names


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
