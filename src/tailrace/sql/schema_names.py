"""The schema `public`: `public.t` is another name of the table, view or topic `t`, as in PostgreSQL.

A name has its namespace before its last dot, and a name without one is in `public`. What has a name that itself begins with
`public.`, such as a topic of Kafka's clients, is found under it first; SQL makes no tables, views and types of such names.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tailrace.broker.broker import Broker
from tailrace.model.names import without_public
from tailrace.sql.statements import (
    AddRouteStatement,
    AlterTableStatement,
    CreateIndexStatement,
    CreateTableAsStatement,
    CreateTableStatement,
    CreateViewStatement,
    DescribeStatement,
    DropRouteStatement,
    DropTableStatement,
    DropViewStatement,
    ExplainStatement,
    Statement,
    TruncateStatement,
    Write,
)

_FIELDS: Mapping[type[Statement], str] = {
    Write: "target",
    CreateTableStatement: "name",
    CreateTableAsStatement: "name",
    CreateViewStatement: "name",
    CreateIndexStatement: "table",
    AlterTableStatement: "name",
    DropTableStatement: "names",
    DropViewStatement: "name",
    TruncateStatement: "names",
    DescribeStatement: "name",
    AddRouteStatement: "table",
    DropRouteStatement: "table",
}
"""Where statements name the relations that they are about. What queries read is found by their analysis."""


def with_found_names(statement: Statement, broker: Broker) -> Statement:
    """Return the statement with the names that its relations have."""
    if isinstance(statement, ExplainStatement):
        return _replaced(statement, "statement", lambda inner: with_found_names(inner, broker))
    field = _FIELDS.get(type(statement))
    if field is None:
        return statement
    if field == "names":
        return _replaced(statement, field, lambda names: [found_name(name, broker) for name in names])
    return _replaced(statement, field, lambda name: found_name(name, broker))


def found_name(name: str, broker: Broker) -> str:
    """Return the name of the relation that is called so, with or without the schema `public`; without it if there is none."""
    bare = without_public(name)
    if bare == name or any(
        find(name) is not None for find in (broker.tables.find, broker.views.find, broker.topics.find_folded)
    ):
        return name
    return bare


def _replaced(statement: Statement, field: str, replace: Callable[[Any], Any]) -> Statement:
    before = getattr(statement, field)
    after = replace(before)
    return statement if after == before else msgspec.structs.replace(statement, **{field: after})
