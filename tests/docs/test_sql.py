"""`docs/reference/sql.md` has an example of every statement, and every example is a statement."""

import re
from collections.abc import Iterator

import pytest

from tailrace.cli.sql.copy_statement import COPY_OPTIONS, parse_copy
from tailrace.cli.sql.script import StatementReader
from tailrace.model.record import MESSAGE_ID_HEADER
from tailrace.model.topic import TopicOptions
from tailrace.sql.grammar.columns import TYPES
from tailrace.sql.handlers.consume import CONSUMED
from tailrace.sql.handlers.insert import COLUMNS
from tailrace.sql.parse import parse
from tailrace.sql.statements import PostgresStatement, SecurityStatement, Statement
from tests.docs.tables import REFERENCE, named_rows

PAGE = (REFERENCE / "sql.md").read_text()
EXAMPLES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _kinds(root: type[Statement]) -> Iterator[type[Statement]]:
    for kind in root.__subclasses__():
        if kind.__module__ == Statement.__module__:
            yield kind
            yield from _kinds(kind)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_statement(example: str) -> None:
    assert parse(example)


def test_every_statement_has_an_example() -> None:
    shown = {type(statement) for example in EXAMPLES for statement in parse(example)}
    kinds = set(_kinds(Statement)) - {PostgresStatement, SecurityStatement}
    assert {kind.__name__ for kind in kinds} == {kind.__name__ for kind in shown}


def test_every_section_has_its_syntax_and_an_example() -> None:
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections if "\n    " not in section or "```sql" not in section] == []


def test_every_type_is_documented_with_all_its_names() -> None:
    documented: dict[str, set[str]] = {}
    for name, cells in named_rows(REFERENCE / "sql.md").items():
        kind = name.partition("(")[0]
        documented[kind] = {kind, *(other.partition("(")[0] for other in re.findall(r"`([^`]+)`", cells[0]))}
    known: dict[str, set[str]] = {}
    for name, kind in TYPES.items():
        known.setdefault(kind, set()).add(name.lower())
    assert {kind: names for kind, names in documented.items() if kind != "type[]"} == known


def test_every_option_and_column_is_documented() -> None:
    columns = [column.name for column in CONSUMED]
    names = ["alias", *TopicOptions.__struct_fields__, *columns, *COLUMNS, MESSAGE_ID_HEADER]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_every_option_and_example_of_copy_is_one() -> None:
    page = (REFERENCE / "copy.md").read_text()
    documented = {
        name for row in re.findall(r"^\| (`[A-Z_`, ]+`) \|", page, re.MULTILINE) for name in re.findall(r"[A-Z_]+", row)
    }
    assert documented == {name.upper() for name in COPY_OPTIONS}
    (example,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for statement in StatementReader().feed(example):
        assert parse_copy(statement.text)
