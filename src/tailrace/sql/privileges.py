"""What the principal of a request may do with statements: checks that are made before a statement looks anything up.

What queries read is checked where their names are looked up (`select/execution.py`), and what the services of the broker do is
checked there: topics, groups, CONSUME, ACK and REDRIVE. The statements about users and grants check who asks themselves
(`handlers/security.py`), and SHOW leaves out what may not be described. `docs/reference/permissions.md` has all of it.

A name that does not exist and one that the principal may not know of are the same error.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.model.errors import ConstraintError, SqlForbiddenError
from tailrace.model.security import CLUSTER, Operation, ResourceKind
from tailrace.sql.grammar.writes import kinds_in
from tailrace.sql.statements import (
    AckStatement,
    AddPartitionsStatement,
    AddRouteStatement,
    AlterQuotaStatement,
    AlterShadowStatement,
    AlterSourceStatement,
    AlterTableStatement,
    AlterTypeStatement,
    ClearTopicStatement,
    ConsumeStatement,
    CreateIndexStatement,
    CreateRoleStatement,
    CreateShadowStatement,
    CreateSourceStatement,
    CreateTableAsStatement,
    CreateTableStatement,
    CreateTokenStatement,
    CreateTopicStatement,
    CreateTypeStatement,
    CreateUserStatement,
    CreateViewStatement,
    DescribeStatement,
    DropIndexStatement,
    DropRoleStatement,
    DropRouteStatement,
    DropShadowStatement,
    DropSourceStatement,
    DropTableStatement,
    DropTokenStatement,
    DropTopicStatement,
    DropTypeStatement,
    DropUserStatement,
    DropViewStatement,
    ExplainStatement,
    GrantRoleStatement,
    GrantStatement,
    PauseShadowStatement,
    Query,
    RedriveStatement,
    ResyncSourceStatement,
    RevokeRoleStatement,
    RevokeStatement,
    SetPasswordStatement,
    SetPipelineStatement,
    SetTopicStatement,
    ShowGrantsStatement,
    ShowStatement,
    SkipLostStatement,
    SnapshotSourceStatement,
    Statement,
    TruncateStatement,
    Write,
)

_READ_BY_QUERIES = (Query,)
_CHECKED_BY_BROKER = (
    *(SetTopicStatement, AddPartitionsStatement, ClearTopicStatement),
    *(ConsumeStatement, AckStatement, RedriveStatement),
)
_CHECKED_BY_HANDLER = (
    *(CreateUserStatement, SetPasswordStatement, DropUserStatement, CreateRoleStatement, DropRoleStatement),
    *(GrantRoleStatement, RevokeRoleStatement, GrantStatement, RevokeStatement, CreateTokenStatement, DropTokenStatement),
    *(AlterQuotaStatement, ShowGrantsStatement, ShowStatement, DropIndexStatement),
)
_ON_CLUSTER = (
    *(CreateTypeStatement, AlterTypeStatement, DropTypeStatement, SetPipelineStatement),
    *(CreateShadowStatement, AlterShadowStatement, PauseShadowStatement, SkipLostStatement, DropShadowStatement),
)
_VERBS: Mapping[Operation, str] = {"insert": "insert into", "delete": "delete from", "select": "read", "consume": "read"}

_UNIQUE = "23505"

Check = Callable[[Any], None]


class Privileges:
    """Used on the event loop, in the task of the request."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._permissions = broker.permissions
        self._checks: dict[type[Statement], Check] = {
            **dict.fromkeys((*_READ_BY_QUERIES, *_CHECKED_BY_BROKER, *_CHECKED_BY_HANDLER), _nothing),
            **dict.fromkeys(_ON_CLUSTER, self._alter_cluster),
            Write: self._write,
            ExplainStatement: lambda asked: self.check(asked.statement),
            CreateTableStatement: self._create_table,
            CreateTableAsStatement: self._create_table,
            AlterTableStatement: lambda asked: self._table("alter", asked.name, asked),
            DropTableStatement: lambda asked: self._tables("drop", asked),
            TruncateStatement: lambda asked: self._tables("delete", asked),
            CreateIndexStatement: lambda asked: self._table("alter", asked.table, asked),
            CreateViewStatement: self._create_view,
            DropViewStatement: lambda asked: self._table("drop", asked.name, asked),
            CreateTopicStatement: lambda asked: self._create("topic", asked.name, asked),
            DropTopicStatement: lambda asked: self._topic("drop", asked.name, asked),
            AddRouteStatement: self._add_route,
            DropRouteStatement: lambda asked: self._topic("alter", asked.topic, asked),
            CreateSourceStatement: lambda asked: self._require("create", "source", asked.name, asked),
            AlterSourceStatement: self._alter_source,
            SnapshotSourceStatement: self._alter_source,
            ResyncSourceStatement: self._alter_source,
            DropSourceStatement: lambda asked: self._require("drop", "source", asked.name, asked),
            DescribeStatement: self._describe,
        }

    def check(self, statement: Statement) -> None:
        """Raise `SqlForbiddenError` unless the principal may run a statement, whose parameters have values."""
        if self._permissions.is_on:
            self._checks[type(statement)](statement)

    def check_target(self, operation: Operation, name: str, place: tuple[int, int] | None = None) -> None:
        """Raise unless the principal may write to the table or topic of a name. There may be none, if it may know that."""
        if self._permissions.is_on and not self._may_write(operation, name):
            raise refusal(current_principal().name, operation, name, place)

    def check_shown(self, error: ConstraintError, *statements: Statement) -> None:
        """Raise an error of writes without its values if they are those of rows that the principal may not read.

        Only UPDATE needs it: who inserts a row knows its values.
        """
        may = self._permissions.may
        updated = [one.target for one in statements if isinstance(one, Write) and one.kind == "update"]
        hidden = next((name for name in updated if not may("select", "table", self._known_name(name))), None)
        if hidden is not None and error.sqlstate == _UNIQUE:
            message = f"a row of table {hidden!r} would have values that must be unique, and that another row has"
            raise ConstraintError(message, sqlstate=_UNIQUE) from None

    def note(self, error: SqlForbiddenError) -> None:
        """Note what was denied in the audit. Called once for each statement that was refused."""
        self._permissions.on_denial(current_principal(), error.operation, error.resource)

    def may_know(self, name: str) -> bool:
        """Return whether the principal may know if there is a table, view or topic of this name."""
        return self._permissions.may("describe", "table", name) or self._permissions.may("describe", "topic", name)

    def _write(self, write: Write) -> None:
        place = write.position_of(write.target_location)
        self.check_target(write.kind, write.target, place)
        if self._broker.tables.find(write.target) is None:
            return
        if _updates_on_conflict(write):
            self.check_target("update", write.target, place)
        if _reads_target(write):
            self.check_target("select", write.target, place)

    def _may_write(self, operation: Operation, name: str) -> bool:
        may = self._permissions.may
        table = self._broker.tables.find(name)
        if table is not None:
            return may(operation, "table", table.name)
        view = self._broker.views.find(name)
        if view is not None:
            return may("describe", "table", view.name)
        live = self._broker.topics.find_folded(name)
        if live is not None:
            return may("publish" if operation == "insert" else "describe", "topic", live.topic.name)
        return self.may_know(name)

    def _create_table(self, asked: CreateTableStatement | CreateTableAsStatement) -> None:
        self._create("table", asked.name, asked)

    def _create_view(self, asked: CreateViewStatement) -> None:
        self._create("table", asked.name, asked)
        if asked.or_replace and self._broker.views.find(asked.name) is not None:
            self._table("drop", asked.name, asked)

    def _create(self, kind: ResourceKind, name: str, asked: Statement) -> None:
        if not self._permissions.may("create", "cluster"):
            self._require("create", kind, name, asked)

    def _tables(self, operation: Operation, asked: DropTableStatement | TruncateStatement) -> None:
        for name in asked.names:
            self._table(operation, name, asked)

    def _table(self, operation: Operation, name: str, asked: Statement) -> None:
        if not self._permissions.may(operation, "table", self._known_name(name)):
            raise refusal(current_principal().name, operation, name, (asked.line, asked.column))

    def _topic(self, operation: Operation, name: str, asked: Statement) -> None:
        if not self._broker.topics.may(operation, name):
            raise refusal(current_principal().name, operation, name, (asked.line, asked.column), "topic")

    def _add_route(self, asked: AddRouteStatement) -> None:
        self._topic("alter", asked.topic, asked)
        self._topic("publish", asked.topic, asked)
        self._table("select", asked.table, asked)

    def _alter_source(self, asked: AlterSourceStatement | SnapshotSourceStatement | ResyncSourceStatement) -> None:
        self._require("alter", "source", asked.name, asked)

    def _alter_cluster(self, asked: Statement) -> None:
        self._require("alter", "cluster", CLUSTER, asked)

    def _describe(self, asked: DescribeStatement) -> None:
        name = asked.name
        if asked.what in ("table", "view") or (asked.what is None and self._is_relation(name)):
            allowed = self._permissions.may("describe", "table", self._known_name(name))
        elif asked.what == "topic" or self._broker.topics.find(name) is not None:
            allowed = self._broker.topics.may("describe", name)
        else:
            allowed = self.may_know(name)
        if not allowed:
            raise refusal(current_principal().name, "describe", name, (asked.line, asked.column))

    def _require(self, operation: Operation, kind: ResourceKind, name: str, asked: Statement) -> None:
        if not self._permissions.may(operation, kind, name):
            raise refusal(current_principal().name, operation, name, (asked.line, asked.column), kind)

    def _is_relation(self, name: str) -> bool:
        broker = self._broker
        return any(find(name) is not None for find in (broker.tables.find, broker.views.find, broker.sources.find_table))

    def _known_name(self, name: str) -> str:
        """Return the name of the table or view that is found under a name, or that name."""
        broker = self._broker
        found = broker.tables.find(name) or broker.views.find(name)
        if found is not None:
            return found.name
        captured = broker.sources.find_table(name)
        return name if captured is None else captured.table.name


def refusal(
    principal: str, operation: Operation, name: str, place: tuple[int, int] | None = None, kind: ResourceKind = "table"
) -> SqlForbiddenError:
    """Return the error for something that a principal may not do, the same whether there is something of that name or not."""
    verb = _VERBS.get(operation, operation.replace("_", " "))
    what = "the server" if kind == "cluster" else repr(name)
    resource = kind if kind == "cluster" else f"{'relation' if kind == 'table' else kind} {name}"
    return denial(f"{principal!r} may not {verb} {what}; have an administrator grant it", operation, resource, place)


def denial(message: str, operation: str, resource: str, place: tuple[int, int] | None) -> SqlForbiddenError:
    """Return an error for what is not granted, with what the audit says of it."""
    error = SqlForbiddenError(message, *(place or ()))
    error.operation, error.resource = operation, resource
    return error


def visible_tables(broker: Broker) -> list[str]:
    """Return the names of tables that the principal of the request may describe."""
    return [table.name for table in broker.tables if broker.permissions.may("describe", "table", table.name)]


def _nothing(statement: Statement) -> None:
    """Check nothing: it is checked elsewhere."""


def _updates_on_conflict(write: Write) -> bool:
    conflict = write.tree.get("InsertStmt", {}).get("onConflictClause", {})
    return bool(conflict.get("action") == "ONCONFLICT_UPDATE")


def _reads_target(write: Write) -> bool:
    """Return whether a write shows values of its table, or depends on them."""
    ((_, fields),) = write.tree.items()
    if fields.get("returningList") or _updates_on_conflict(write):
        return True
    if write.kind == "insert":
        return False
    clauses = ("whereClause", "fromClause", "usingClause")
    return any(fields.get(clause) for clause in clauses) or "ColumnRef" in kinds_in(fields.get("targetList", ()))
