"""INSERTs of plain values mean the same, read quickly or parsed."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from tailrace.model.limits import Limits
from tailrace.sql.parse import parse
from tailrace.sql.plain_inserts import PlainInserts, read_plain_insert
from tailrace.sql.statements import Write
from tailrace.sql.tables.schema import constant

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
    shape = PlainInserts(Limits()).shape_of(text)
    return None if shape is None else read_plain_insert(text, shape)


@given(ROWS, SPACE, st.sampled_from(["", ";", " ; \n"]))
def test_values_are_those_that_the_parser_finds(rows: list[tuple[str, ...]], space: str, end: str) -> None:
    values = f",{space}".join(f"({space}{f'{space},'.join(row)})" for row in rows)
    text = f"INSERT INTO a.b{space} VALUES{space}{values}{end}"
    quick = read(text)
    assert quick is not None
    (parsed,) = parse(text)
    assert isinstance(parsed, Write)
    source = parsed.tree.expression
    assert isinstance(source, exp.Values)
    assert quick.rows == [tuple(constant(cell) for cell in row.expressions) for row in source.expressions]


def test_the_statement_has_parameters_in_the_place_of_the_values() -> None:
    write = read("insert into a.b (x, y) values (1, 'it''s'), (-2.50, NULL)")
    assert write is not None
    assert (write.kind, write.target, write.parameters) == ("insert", "a.b", ("1", "2"))
    assert write.rows == [(1, "it's"), (Decimal("-2.50"), None)]


def test_texts_of_the_same_shape_share_their_tree() -> None:
    inserts = PlainInserts(Limits())
    trees = [inserts.shape_of(f"INSERT INTO t (a) VALUES ({number})") for number in range(3)]
    assert len({id(shape.write.tree) for shape in trees if shape is not None}) == 1


def test_only_so_many_shapes_are_remembered() -> None:
    inserts = PlainInserts(Limits(parsed_texts=2))
    for name in "abcd":
        assert inserts.shape_of(f"INSERT INTO {name} VALUES (1)") is not None
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
