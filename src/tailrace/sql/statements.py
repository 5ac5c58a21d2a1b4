"""The statements of our SQL, as values. `parse` makes them, `engine` runs them; nothing here knows how.

Names are as written, with their namespace (`app.new_messages`). Expressions stay sqlglot trees, because the engines that
run them want them in their own dialects.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Union

import msgspec
from sqlglot import exp

from tailrace.model.fetch import StartAt
from tailrace.model.route import Operation, PayloadMode
from tailrace.model.table import Column
from tailrace.model.topic import NO_OPTIONS, TopicOptions

if TYPE_CHECKING:
    from tailrace.sql.tables.programs import CompiledStatement


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """Any statement. `text` is how it was written, for messages that point at a place in it."""

    text: str
    line: int = 1
    """Where it begins in the text of the request; both count from 1."""
    column: int = 1
    parameters: Sequence[str] = ()
    """Names of its parameters; that of a `?` is its number in the statement: `1`, `2`. In a tree they are placeholders of
    that name."""


class CreateTableStatement(Statement, frozen=True, kw_only=True):
    name: str
    columns: Sequence[Column]
    primary_key: Sequence[str]
    if_not_exists: bool = False


class DropTableStatement(Statement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False
    cascade: bool = False
    """Whether its routes go with it."""


class Write(Statement, frozen=True, kw_only=True):
    """INSERT, UPDATE or DELETE. Whether `target` is a table or a topic is for the engine to say."""

    kind: Operation
    target: str
    tree: exp.Expression
    """Shared by all who run the same text: copy it before you change it."""
    rows: Sequence[Sequence[object]] | None = None
    """The rows of an INSERT of plain values, which stand as parameters in the tree: it is to be run once for each."""
    compiled: Union["CompiledStatement", None] = None
    """Of a long statement, which was compiled where it was parsed. Of its tree only the head is here."""


class Query(Statement, frozen=True, kw_only=True):
    """SELECT, with or without CTEs; set operations; VALUES."""

    tree: exp.Expression
    """Shared by all who run the same text: copy it before you change it."""
    sources: Sequence[str]
    """The tables and topics that it names, CTEs and functions left out."""
    has_functions: bool = False
    """Whether it reads from functions too, such as `table_changes`."""
    compiled: Union["CompiledStatement", None] = None
    """Of a long query, which was compiled where it was parsed. Its tree is empty here."""


class BeginStatement(Statement, frozen=True, kw_only=True):
    pass


class CommitStatement(Statement, frozen=True, kw_only=True):
    pass


class RollbackStatement(Statement, frozen=True, kw_only=True):
    pass


class CreateTopicStatement(Statement, frozen=True, kw_only=True):
    name: str
    partitions: int | None = None
    alias: str | None = None
    options: TopicOptions = NO_OPTIONS
    if_not_exists: bool = False


class SetTopicStatement(Statement, frozen=True, kw_only=True):
    """ALTER TOPIC ... SET."""

    name: str
    options: TopicOptions
    alias: str | msgspec.UnsetType | None = msgspec.UNSET


class AddPartitionsStatement(Statement, frozen=True, kw_only=True):
    name: str
    partitions: int
    """How many more."""


class ClearTopicStatement(Statement, frozen=True, kw_only=True):
    name: str


class DropTopicStatement(Statement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False
    cascade: bool = False
    """Whether its routes go with it."""


class AddSourceStatement(Statement, frozen=True, kw_only=True):
    topic: str
    table: str
    operations: Sequence[Operation]
    where: exp.Expression | None = None
    partition_by: Sequence[exp.Expression] = ()
    payload: PayloadMode = "key"
    snapshot: bool = False
    explain: bool = False
    """EXPLAIN: only show what the route would do."""


class DropSourceStatement(Statement, frozen=True, kw_only=True):
    topic: str
    table: str


class ShowStatement(Statement, frozen=True, kw_only=True):
    what: Literal["topics", "tables", "routes", "groups"]


class DescribeStatement(Statement, frozen=True, kw_only=True):
    what: Literal["topic", "table"]
    name: str


class ConsumeStatement(Statement, frozen=True, kw_only=True):
    topic: str
    group: str | None = None
    partition: int | None = None
    start: StartAt | None = None
    """`None` when FROM is left out."""
    limit: int = 100
    wait_ms: int = 0
    skips_corrupt: bool = False
    """Whether batches that can't be decoded are left out."""


class RedriveStatement(Statement, frozen=True, kw_only=True):
    """Put dead letters of a topic back into it."""

    topic: str
    where: exp.Expression | None = None
    limit: int | None = None


class AckStatement(Statement, frozen=True, kw_only=True):
    topic: str
    group: str
    partition: int = 0
    upto_offset: int
    """The last offset that is done. The group goes on after it."""
