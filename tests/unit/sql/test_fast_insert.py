"""INSERTs of plain values mean the same, read quickly or parsed."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.sql.fast_insert import FastInsertParser, fast_parse_insert, with_rows_apart
from tailrace.sql.grammar.writes import constant_of, plain_rows
from tailrace.sql.parse import parse
from tailrace.sql.statements import Query, Write

LITERALS = st.one_of(
    st.sampled_from(["NULL", "null", "TRUE", "false", "0", "-0", "1.50", "-2.5e10", "1E-3"]),
    st.integers(-(10**30), 10**30).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda number: f"{number:f}"),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).map(
        lambda text: "'" + text.replace("'", "''") + "'"
    ),
)
ROWS = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[LITERALS] * width), min_size=1, max_size=5))
SPACE = st.sampled_from(["", " ", "\n  "])


def read(text: str) -> Write | None:
    template = FastInsertParser(Limits()).template_of(text)
    return None if template is None else fast_parse_insert(text, template)


@given(ROWS, SPACE, st.sampled_from(["", ";", " ; \n"]))
def test_values_are_those_that_the_parser_finds(rows: list[tuple[str, ...]], space: str, end: str) -> None:
    values = f",{space}".join(f"({space}{f'{space},'.join(row)})" for row in rows)
    text = f"INSERT INTO a.b{space} VALUES{space}{values}{end}"
    quick = read(text)
    assert quick is not None
    (parsed,) = parse(text)
    assert isinstance(parsed, Write)
    cells = plain_rows(parsed.tree["InsertStmt"])
    assert cells is not None
    assert quick.rows == [tuple(map(constant_of, row)) for row in cells]


def test_the_statement_has_parameters_in_the_place_of_the_values() -> None:
    write = read("insert into a.b (x, y) values (1, 'it''s'), (-2.50, NULL)")
    assert write is not None
    assert (write.kind, write.target, write.parameters) == ("insert", "a.b", ("1", "2"))
    assert write.rows == [(1, "it's"), (Decimal("-2.50"), None)]


def test_texts_of_the_same_shape_share_their_tree() -> None:
    inserts = FastInsertParser(Limits())
    trees = [inserts.template_of(f"INSERT INTO t (a) VALUES ({number})") for number in range(3)]
    assert len({id(template.write.tree) for template in trees if template is not None}) == 1


def test_only_so_many_shapes_are_remembered() -> None:
    inserts = FastInsertParser(Limits(parsed_texts=2))
    for name in "abcd":
        assert inserts.template_of(f"INSERT INTO {name} VALUES (1)") is not None
    assert len(inserts._known) == 2


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING",
        "INSERT INTO t (a) VALUES (1); SELECT 1",
        "INSERT INTO t (a) VALUES (1), (2, 3)",
        "INSERT INTO t (a) VALUES (1),",
        "INSERT INTO t (a) VALUES (1 + 1)",
        "INSERT INTO t (a) VALUES (?)",
        "INSERT INTO t (a) VALUES (E'a')",
        "INSERT INTO t (a) VALUES (DEFAULT)",
        "INSERT INTO t (a) VALUES ('a' 'b')",
        "INSERT INTO t (a) VALUES ('a",
        "INSERT INTO t (a) SELECT 1",
        "INSERT INTO t (a,) VALUES (1)",
        "INSERT INTO t VALUES (" + ", ".join("1" * 501) + ")",
        "SELECT 1",
    ],
)
def test_everything_else_is_left_to_the_parser(text: str) -> None:
    assert read(text) is None


def test_a_long_insert_behind_other_statements_has_its_rows_apart_from_its_tree() -> None:
    """So a text may make a table and fill it: it is not known where the text is parsed."""
    values = ", ".join(f"({number}, -1.5, 'it''s', NULL, TRUE)" for number in range(1_000))
    (write, other) = parse(f'INSERT INTO a."Bc" (v, w, x, y, z) VALUES {values}; SELECT 1', DEFAULT_LIMITS)
    assert isinstance(write, Write)
    found = with_rows_apart(write, DEFAULT_LIMITS)
    assert found is not None
    assert found.rows == [(number, Decimal("-1.5"), "it's", None, True) for number in range(1_000)]
    assert (found.target, found.line, found.column) == (write.target, write.line, write.column)
    alone = FastInsertParser(DEFAULT_LIMITS).template_of(f'INSERT INTO a."Bc" (v, w, x, y, z) VALUES {values}')
    assert alone is not None
    assert (found.tree, found.parameters) == (alone.write.tree, alone.write.parameters)
    assert isinstance(other, Query)


@pytest.mark.parametrize(
    "values", ["(1 + 1)", "(now())", "(1), (2, 3)", "(?)", "(1) RETURNING v", "(1) ON CONFLICT DO NOTHING"]
)
def test_an_insert_of_anything_else_stays_as_it_was_parsed(values: str) -> None:
    (write,) = parse(f"INSERT INTO t VALUES {values}", DEFAULT_LIMITS)
    assert isinstance(write, Write)
    assert with_rows_apart(write, DEFAULT_LIMITS) is None
