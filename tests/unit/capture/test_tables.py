"""How the history of a captured table follows the schema of the database."""

import pytest

from tailrace.capture.tables import column_changes
from tailrace.model.table import Column, ColumnChange, ColumnType

_INT, _TEXT = ColumnType("integer"), ColumnType("text")


def columns(*names: str, **types: ColumnType) -> list[Column]:
    return [Column(name, types.get(name, _INT)) for name in names]


@pytest.mark.parametrize(
    ("before", "numbers", "after", "numbers_after", "changes"),
    [
        (columns("a", "b"), (1, 2), columns("a", "b"), (1, 2), []),
        (columns("a", "b"), (1, 2), columns("a", "b", "c"), (1, 2, 3), [ColumnChange("add", 2)]),
        (columns("a", "b"), (1, 2), columns("b"), (2,), [ColumnChange("drop", 0, "a", _INT)]),
        (columns("a", "b"), (1, 2), columns("a", "x"), (1, 2), [ColumnChange("rename", 1, "b")]),
        (columns("a", "b"), (1, 2), columns("a", "b", b=_TEXT), (1, 2), [ColumnChange("retype", 1, type=_INT)]),
        # A column that was dropped and created again under its name is another one.
        (columns("a", "b"), (1, 2), columns("a", "b"), (1, 3), [ColumnChange("drop", 1, "b", _INT), ColumnChange("add", 1)]),
        # Where the catalog does not know a number, names decide.
        (columns("a", "b"), (0, 0), columns("a", "c"), (0, 0), [ColumnChange("drop", 1, "b", _INT), ColumnChange("add", 1)]),
        (columns("a", "b"), (1, 2), columns("a", "b"), (0, 0), []),
    ],
)
def test_changes_of_columns(
    before: list[Column],
    numbers: tuple[int, ...],
    after: list[Column],
    numbers_after: tuple[int, ...],
    changes: list[ColumnChange],
) -> None:
    assert list(column_changes(before, numbers, after, numbers_after)) == changes
