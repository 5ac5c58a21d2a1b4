"""The statements of the SQL dialect, as values. `parse` creates them and `engine` runs them.

Names are kept as written, with their namespace (`app.new_messages`). Expressions stay sqlglot trees, because each engine needs
them in its own dialect.
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
    """Any statement. `text` is the statement as it was written."""

    text: str
    line: int = 1
    """Where the statement starts in the text of the request; line and column count from 1."""
    column: int = 1
    parameters: Sequence[str] = ()
    """The names of its parameters; a `?` is named by its number in the statement: `1`, `2`. In a tree they are placeholders of
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
    """Whether its routes are dropped too."""


class Write(Statement, frozen=True, kw_only=True):
    """INSERT, UPDATE or DELETE. The engine decides whether `target` is a table or a topic."""

    kind: Operation
    target: str
    tree: exp.Expression
    """Shared by all requests with the same text: copy it before changing it."""
    rows: Sequence[Sequence[object]] | None = None
    """The rows of an INSERT of plain values. The tree has parameters in their place, and the statement runs once for each row.
    """
    compiled: Union["CompiledStatement", None] = None
    """The program of a long statement, which was compiled in the parser process; its tree then only has the target."""


class Query(Statement, frozen=True, kw_only=True):
    """SELECT, with or without CTEs; set operations; VALUES."""

    tree: exp.Expression
    """Shared by all requests with the same text: copy it before changing it."""
    sources: Sequence[str]
    """The tables and topics that it names, without CTEs and functions."""
    has_functions: bool = False
    """Whether it also reads from functions, such as `table_changes`."""
    compiled: Union["CompiledStatement", None] = None
    """The program of a long query, which was compiled in the parser process; its tree is then empty."""


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
    """How many partitions to add."""


class ClearTopicStatement(Statement, frozen=True, kw_only=True):
    name: str


class DropTopicStatement(Statement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False
    cascade: bool = False
    """Whether its routes are dropped too."""


class AddSourceStatement(Statement, frozen=True, kw_only=True):
    topic: str
    table: str
    operations: Sequence[Operation]
    where: exp.Expression | None = None
    partition_by: Sequence[exp.Expression] = ()
    payload: PayloadMode = "key"
    snapshot: bool = False
    explain: bool = False
    """Whether to only show what the route would do (EXPLAIN)."""


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
    """`None` if FROM is missing."""
    limit: int = 100
    wait_ms: int = 0
    skips_corrupt: bool = False
    """Whether batches that can't be decoded are skipped."""


class RedriveStatement(Statement, frozen=True, kw_only=True):
    """Publish dead letters of a topic to it again."""

    topic: str
    where: exp.Expression | None = None
    limit: int | None = None


class AckStatement(Statement, frozen=True, kw_only=True):
    topic: str
    group: str
    partition: int = 0
    upto_offset: int
    """The last offset that was processed. The group continues after it."""
