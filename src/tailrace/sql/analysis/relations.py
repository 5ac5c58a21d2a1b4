"""What a query can read, as the analysis needs to know it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.sql.analysis.tree import (
    Expression,
)
from tailrace.sql.analysis.types import SqlType


class RelationColumn(NamedTuple):
    name: str
    type: SqlType
    is_hidden: bool = False
    is_json_text: bool = False
    is_key: bool = False
    """Whether it belongs to the primary key."""
    unique_keys: Sequence[str] = ()
    """The names of the unique constraints and indexes that it belongs to, with that of the primary key."""
    is_identity: bool = False
    is_generated: bool = False
    """Whether only the table gives it values (GENERATED ALWAYS)."""


class KeyedRelation(NamedTuple):
    """A table or topic that is known under another name than the one that a view calls it by."""

    key: str
    columns: Sequence[RelationColumn]


class ViewQuery(NamedTuple):
    """A view, which stands for its query."""

    name: str
    tree: Mapping[str, Any]
    """The `SelectStmt` of its query."""
    columns: Sequence[str]
    """The names of its columns. The query may have more behind them, which are not seen."""
    find: "FindRelation"
    find_function: "FindFunction"
    """How the names in its query are looked up."""


FindRelation = Callable[[str], "Sequence[RelationColumn] | KeyedRelation | ViewQuery | None"]
"""Returns the columns of a table, topic or system table by its full name, or a view, if there is one."""
FindFunction = Callable[[str, Sequence[Expression]], "tuple[str, Sequence[RelationColumn]] | None"]
"""Returns the name and the columns of the relation that a function of Tailrace's own stands for, such as `table_changes`."""
