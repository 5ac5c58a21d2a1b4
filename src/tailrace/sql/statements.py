"""The statements of the SQL dialect, as values. `parse` creates them and `engine` runs them.

Names are kept as written, with their namespace (`app.new_messages`). Queries and writes are parse trees of PostgreSQL, and the
expressions of routes are texts of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from tailrace.model.fetch import StartAt
from tailrace.model.ids import RouteId
from tailrace.model.pipeline import Latency
from tailrace.model.quota import QuotaKind
from tailrace.model.route import Operation, PayloadMode
from tailrace.model.security import NamePattern, ResourceKind
from tailrace.model.security import Operation as GrantedOperation
from tailrace.model.shadow import CopiedBy, ShadowDirection
from tailrace.model.source import CapturedBy, SnapshotMode
from tailrace.model.table import Column, ColumnType, Table
from tailrace.model.topic import NO_OPTIONS, TopicOptions
from tailrace.sql.text_positions import position_at

if TYPE_CHECKING:
    from tailrace.sql.analysis.tree import AnalyzedQuery
    from tailrace.sql.analysis.write_tree import AnalyzedWrite
    from tailrace.sql.tables.jobs import RowSource


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """Any statement. `text` is the statement as it was written."""

    text: str
    line: int = 1
    """Where the statement starts in the text of the request; line and column count from 1."""
    column: int = 1
    parameters: Sequence[str] = ()
    """The names of its parameters; a `?` is named by its number in the statement: `1`, `2`. In a tree they
    are numbered in this order."""


class ExpressionText(msgspec.Struct, frozen=True):
    """An expression as it was written, with its place in the text of the request."""

    text: str
    line: int = 1
    column: int = 1
    tokens: int = 1
    """How many words and signs it has."""

    def position(self, index: int) -> tuple[int, int]:
        """Return the line and column of one of its characters."""
        before = self.text[:index].replace("\r\n", "\n").replace("\r", "\n")
        breaks = before.count("\n")
        within = len(before) - before.rfind("\n")
        return self.line + breaks, within if breaks else self.column + within - 1


class CheckDefinition(NamedTuple):
    """CHECK of a table or column. One without a name gets one."""

    name: str | None
    expression: ExpressionText


class UniqueDefinition(NamedTuple):
    """UNIQUE of a table or column. One without a name gets one."""

    name: str | None
    columns: Sequence[str]


class CreateTableStatement(Statement, frozen=True, kw_only=True):
    name: str
    columns: Sequence[Column]
    primary_key: Sequence[str]
    key_name: str | None = None
    checks: Sequence[CheckDefinition] = ()
    uniques: Sequence[UniqueDefinition] = ()
    if_not_exists: bool = False
    enums: Mapping[str, tuple[int, int]] = {}
    """The types of columns that are no types of PostgreSQL, with their places in the text."""


class CreateIndexStatement(Statement, frozen=True, kw_only=True):
    name: str | None
    """One without a name gets one."""
    table: str
    columns: Sequence[str]
    descending: Sequence[str] = ()
    is_unique: bool = False
    if_not_exists: bool = False


class DropIndexStatement(Statement, frozen=True, kw_only=True):
    names: Sequence[str]
    if_exists: bool = False


class CreateTypeStatement(Statement, frozen=True, kw_only=True):
    """CREATE TYPE ... AS ENUM."""

    name: str
    labels: tuple[str, ...]


class AlterTypeStatement(Statement, frozen=True, kw_only=True):
    """ALTER TYPE ... ADD VALUE."""

    name: str
    label: str
    neighbor: str | None = None
    """The label that it is added before or behind; without one it is added behind all others."""
    is_after: bool = False
    if_not_exists: bool = False


class DropTypeStatement(Statement, frozen=True, kw_only=True):
    names: Sequence[str]
    if_exists: bool = False


class DropTableStatement(Statement, frozen=True, kw_only=True):
    names: Sequence[str]
    if_exists: bool = False
    cascade: bool = False
    """Whether its routes are dropped too."""


class AlterAction(msgspec.Struct, frozen=True, kw_only=True):
    """One action of ALTER TABLE."""

    name: str
    """The column or constraint that it is about."""
    position: tuple[int, int] = (1, 1)
    """Line and column of the action in the text of the request."""


class AddColumn(AlterAction, frozen=True, kw_only=True):
    column: Column
    if_not_exists: bool = False


class DropColumn(AlterAction, frozen=True, kw_only=True):
    if_exists: bool = False


class RenameColumn(AlterAction, frozen=True, kw_only=True):
    new_name: str


class SetColumnType(AlterAction, frozen=True, kw_only=True):
    type: ColumnType


class SetColumnDefault(AlterAction, frozen=True, kw_only=True):
    default: str | None
    """`None` to have no default."""


class SetNotNull(AlterAction, frozen=True, kw_only=True):
    pass


class DropNotNull(AlterAction, frozen=True, kw_only=True):
    pass


class AddConstraint(AlterAction, frozen=True, kw_only=True):
    """CHECK or UNIQUE; one of the two is given."""

    check: CheckDefinition | None = None
    unique: UniqueDefinition | None = None


class DropConstraint(AlterAction, frozen=True, kw_only=True):
    if_exists: bool = False


class AlterTableStatement(Statement, frozen=True, kw_only=True):
    name: str
    actions: Sequence[AlterAction]
    if_exists: bool = False


class TruncateStatement(Statement, frozen=True, kw_only=True):
    """Remove all rows of tables, in one transaction."""

    names: Sequence[str]
    restart_identity: bool = False
    """Whether identity columns begin at their start again."""


class TextEdit(NamedTuple):
    """A part of a text that was replaced: from `start` to `end` in the new text, which were others in the original one."""

    start: int
    end: int
    original_start: int
    original_end: int


class PostgresStatement(Statement, frozen=True, kw_only=True):
    """A statement in PostgreSQL's grammar. Statements with the same text share it."""

    tree: Mapping[str, Any]
    """The node of PostgreSQL's parser, its fields under the name of its kind. It must not be changed."""
    postgres_text: str
    """The text that PostgreSQL's parser was given, in whose UTF-8 bytes the locations of the tree count."""
    edits: Sequence[TextEdit] = ()
    """Where that text differs from what was written."""

    def position_of(self, location: int) -> tuple[int, int]:
        """Return the line and column of a location in the text of the request; those of the query if it is not known."""
        if location < 0:
            return self.line, self.column
        index = len(self.postgres_text.encode()[:location].decode(errors="ignore"))
        return self.position_at(index)

    def position_at(self, index: int) -> tuple[int, int]:
        """Return the line and column of a character of the text that PostgreSQL's parser was given."""
        shift = 0
        for edit in self.edits:
            if index >= edit.end:
                shift = edit.original_end - edit.end
            elif index >= edit.start:
                index, shift = edit.original_start, 0
                break
        line, column = position_at(self.text, index + shift)
        return (self.line + line - 1, column) if line > 1 else (self.line, self.column + column - 1)


class Query(PostgresStatement, frozen=True, kw_only=True):
    """SELECT, with or without CTEs; set operations; VALUES."""


class Write(PostgresStatement, frozen=True, kw_only=True):
    """INSERT, UPDATE or DELETE. The engine decides whether `target` is a table or a topic."""

    kind: Operation
    target: str
    target_location: int = -1
    rows: Sequence[Sequence[object]] | None = None
    """The rows of an INSERT of plain values. The tree has parameters in their place, and the statement runs once for each row.
    """
    has_queries: bool = False
    """Whether it reads rows: by a subquery, FROM, USING or WITH, or because it inserts the rows of a query."""
    queries: "WriteQueries | None" = None
    """What runs its queries; each request has its own."""


class WriteQueries(Protocol):
    """Analyzes one write and runs its queries. See `select.write_queries`."""

    def analyze(self, parameters: Sequence[object], find: "Callable[[str], Table | None]") -> "AnalyzedWrite":
        """Return the statement with these parameters. Raises if a table that was found before is another one now."""
        ...

    def read(self, query: "AnalyzedQuery", role: str, rows: "RowSource") -> list[tuple[Any, ...]]:
        """Return the rows of one of its queries over the tables as a transaction sees them, as values of expressions."""
        ...


class CreateTableAsStatement(Statement, frozen=True, kw_only=True):
    name: str
    query: Query
    columns: Sequence[str] = ()
    """The names of its first columns, if they are not those of the query."""
    primary_key: Sequence[str] = ()
    """Empty if the key follows from the query."""
    if_not_exists: bool = False
    with_data: bool = True


class CreateViewStatement(Statement, frozen=True, kw_only=True):
    name: str
    query: Query
    columns: Sequence[str] = ()
    """The names of its first columns, if they are not those of the query."""
    or_replace: bool = False


class DropViewStatement(Statement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False
    cascade: bool = False
    """Whether views that use it are dropped too."""


class ExplainStatement(Statement, frozen=True, kw_only=True):
    """EXPLAIN of another statement."""

    statement: Statement
    analyze: bool = False
    """Whether the statement is run, to measure it. What it writes is written."""
    format: Literal["text", "json"] = "text"
    timing: bool = False
    """Whether the time of each step is shown."""


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


class AddRouteStatement(Statement, frozen=True, kw_only=True):
    topic: str
    table: str
    operations: Sequence[Operation]
    where: ExpressionText | None = None
    partition_by: Sequence[ExpressionText] = ()
    payload: PayloadMode = "key"
    snapshot: bool = False
    explain: bool = False
    """Whether to only show what the route would do (EXPLAIN)."""


class DropRouteStatement(Statement, frozen=True, kw_only=True):
    """Drops all routes from a table to a topic, or one by its number."""

    topic: str
    table: str = ""
    route_id: RouteId | None = None


class CreateSourceStatement(Statement, frozen=True, kw_only=True):
    name: str
    url: str
    tables: tuple[str, ...] = ("public.*",)
    """Patterns of the tables that are captured."""
    snapshot: SnapshotMode = "initial"
    password_env: str | None = None
    password_file: str | None = None
    publication: str | None = None
    """One that exists and is not changed by the capture."""
    slot: str | None = None
    captured_by: CapturedBy = "server"
    if_not_exists: bool = False
    is_dry_run: bool = False


class AlterSourceStatement(Statement, frozen=True, kw_only=True):
    """ALTER SOURCE ... SET. What is not set stays as it is."""

    name: str
    url: str | None = None
    tables: tuple[str, ...] | None = None
    password_env: str | None = None
    password_file: str | None = None


class SnapshotSourceStatement(Statement, frozen=True, kw_only=True):
    """ALTER SOURCE ... SNAPSHOT."""

    name: str
    tables: tuple[str, ...] = ()
    """All if empty."""


class ResyncSourceStatement(Statement, frozen=True, kw_only=True):
    """ALTER SOURCE ... RESYNC."""

    name: str


class DropSourceStatement(Statement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False
    cascade: bool = False
    """Whether the routes from its tables are dropped too."""
    force: bool = False
    """Whether its slot may stay in the database."""


class CreateShadowStatement(Statement, frozen=True, kw_only=True):
    name: str
    direction: ShadowDirection
    bootstrap: str
    topics: tuple[str, ...]
    groups: tuple[str, ...] = ("*",)
    settings: dict[str, str] = {}
    user: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    throttle_bytes: int | None = None
    copied_by: CopiedBy = "server"
    if_not_exists: bool = False
    is_dry_run: bool = False


class AlterShadowStatement(Statement, frozen=True, kw_only=True):
    """ALTER SHADOW ... SET. What is not set stays as it is."""

    name: str
    changes: dict[str, Any]
    """Fields of the shadow."""


class PauseShadowStatement(Statement, frozen=True, kw_only=True):
    """ALTER SHADOW ... PAUSE or RESUME."""

    name: str
    is_paused: bool


class SkipLostStatement(Statement, frozen=True, kw_only=True):
    """ALTER SHADOW ... SKIP LOST."""

    name: str


class DropShadowStatement(Statement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False
    force: bool = False
    """Whether topics that were cut over may take records here again."""


class SetPipelineStatement(Statement, frozen=True, kw_only=True):
    """ALTER PIPELINE ... SET."""

    name: str
    latency: Latency


class SecurityStatement(Statement, frozen=True, kw_only=True):
    """A statement about users, roles, tokens, grants and quotas. It is not remembered, and `text` is only its kind."""


class Secret(msgspec.Struct, frozen=True):
    """A password. It is not part of what is shown of its statement."""

    value: str

    def __repr__(self) -> str:
        return "Secret(...)"


class GrantedResource(NamedTuple):
    """What something is granted on, with its place in the text of the request."""

    kind: ResourceKind
    name: str
    pattern: NamePattern = "literal"
    position: tuple[int, int] = (1, 1)


class CreateUserStatement(SecurityStatement, frozen=True, kw_only=True):
    name: str
    password: Secret | None = None
    roles: tuple[str, ...] = ()
    if_not_exists: bool = False


class SetPasswordStatement(SecurityStatement, frozen=True, kw_only=True):
    """ALTER USER ... PASSWORD."""

    name: str
    password: Secret | None
    """`None` to have none."""


class DropUserStatement(SecurityStatement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False


class CreateRoleStatement(SecurityStatement, frozen=True, kw_only=True):
    name: str


class DropRoleStatement(SecurityStatement, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False


class GrantRoleStatement(SecurityStatement, frozen=True, kw_only=True):
    """GRANT role TO."""

    roles: tuple[str, ...]
    members: tuple[str, ...]


class RevokeRoleStatement(SecurityStatement, frozen=True, kw_only=True):
    """REVOKE role FROM."""

    roles: tuple[str, ...]
    members: tuple[str, ...]


class GrantStatement(SecurityStatement, frozen=True, kw_only=True):
    """GRANT ... ON."""

    operations: tuple[GrantedOperation, ...]
    resources: tuple[GrantedResource, ...]
    """All of one kind."""
    principals: tuple[str, ...]


class RevokeStatement(SecurityStatement, frozen=True, kw_only=True):
    """REVOKE ... ON."""

    operations: tuple[GrantedOperation, ...]
    resources: tuple[GrantedResource, ...]
    principals: tuple[str, ...]


class CreateTokenStatement(SecurityStatement, frozen=True, kw_only=True):
    user: str
    expires: str | None = None
    """An interval from now, or a time."""
    note: str = ""


class DropTokenStatement(SecurityStatement, frozen=True, kw_only=True):
    token_id: str


class AlterQuotaStatement(SecurityStatement, frozen=True, kw_only=True):
    """ALTER USER ... SET QUOTA or RESET QUOTA, and that of client ids."""

    user: str | None = None
    """`None` and `client_id` for all users of a client id."""
    client_id: str | None = None
    quotas: tuple[tuple[QuotaKind, float | None], ...]
    """`None` removes the quota."""


class ShowGrantsStatement(SecurityStatement, frozen=True, kw_only=True):
    principal: str | None = None
    """The user or role whose grants are shown, with those of its roles."""


ShownObjects = Literal[
    "topics", "tables", "views", "routes", "groups", "pipelines", "sources", "shadows", "users", "roles", "tokens", "quotas"
]


class ShowStatement(Statement, frozen=True, kw_only=True):
    what: ShownObjects


class DescribeStatement(Statement, frozen=True, kw_only=True):
    what: Literal["topic", "table", "view"] | None
    """`None` for whichever has the name."""
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
    where: str | None = None
    """The condition as it was written, from this line and column on."""
    where_line: int = 1
    where_column: int = 1
    limit: int | None = None


class AckStatement(Statement, frozen=True, kw_only=True):
    topic: str
    group: str
    partition: int = 0
    upto_offset: int
    """The last offset that was processed. The group continues after it."""
