"""Which value belongs to which parameter."""

from collections.abc import Mapping, Sequence

import pytest

from tailrace.model.errors import SqlError
from tailrace.sql.parameters import Parameters, assign_parameters, by_name, is_many
from tailrace.sql.parse import parse


def shared(text: str, given: Parameters) -> list[Parameters]:
    return assign_parameters(parse(text), given)


def test_values_in_order_are_handed_out_over_the_statements() -> None:
    text = "SELECT ?, ?; SHOW TOPICS; ACK a GROUP ? PARTITION ? UPTO OFFSET 1"
    assert shared(text, [1, 2, "g", 4]) == [[1, 2], [], ["g", 4]]


def test_values_by_name_are_the_same_for_all_statements() -> None:
    assert shared("SELECT :a, :b; SELECT :a", {"a": 1, "b": 2}) == [{"a": 1, "b": 2}, {"a": 1}]


def test_the_values_of_a_statement_by_name() -> None:
    (statement,) = parse("SELECT ?, ?")
    assert by_name(statement, ["x", "y"]) == {"1": "x", "2": "y"}


@pytest.mark.parametrize(
    ("text", "given", "many"),
    [
        ("INSERT INTO t VALUES (?, ?)", [[1, 2], [3, 4], [5, 6]], True),
        ("INSERT INTO t VALUES (?, ?)", [[1, 2], [3, 4]], True),
        ("INSERT INTO t VALUES (?, ?)", [[1, 2, 3], [4]], False),
        ("INSERT INTO t VALUES (?, ?)", [1, [2]], False),
        ("INSERT INTO t VALUES (?)", [[1]], True),
        ("SELECT ?", [[1]], False),
        ("INSERT INTO t VALUES (:a)", [{"a": 1}, {"a": 2}], True),
    ],
)
def test_rows_are_told_from_lists_of_values(text: str, given: Sequence[object], many: bool) -> None:
    (statement,) = parse(text)
    (values,) = assign_parameters([statement], given)
    assert values == given
    assert is_many(values, statement) is many


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("SELECT ?, ?", [1], "the text has 2 parameters (?), but the request has 1 value"),
        ("SELECT 1", [1], "the text has 0 parameters (?), but the request has 1 value"),
        ("SELECT ?", {"a": 1}, "send their values as a list"),
        ("SELECT :a", [1], "send their values as an object"),
        ("SELECT :a, :b", {"a": 1}, "the request has no value for :b"),
        ("SELECT :a", {"a": 1, "b": 2}, "the text has no parameter :b"),
        ("SELECT ?, :a", [1], "both forms, ? and :name"),
        ("SELECT ?", "x", "must be a list or an object"),
        ("INSERT INTO t VALUES (?, ?)", [[1, 2], [3, 4], [5]], "row 3 has 1 value"),
        ("INSERT INTO t VALUES (:a)", [{"a": 1}, {"b": 1}], "row 2 of the parameters must have exactly the values :a"),
        ("SELECT 1; INSERT INTO t VALUES (?, ?)", [[1, 2]], "the text has 2 parameters (?), but the request has 1 value"),
    ],
)
def test_values_without_a_place_and_places_without_a_value_are_refused(
    text: str, given: Sequence[object] | Mapping[str, object], message: str
) -> None:
    with pytest.raises(SqlError) as refused:
        shared(text, given)
    assert message in str(refused.value)
