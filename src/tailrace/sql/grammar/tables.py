"""CREATE TABLE and DROP TABLE, read by PostgreSQL's parser.

CREATE TABLE [IF NOT EXISTS] name (
    column type [NOT NULL | NULL] [DEFAULT expression] [PRIMARY KEY], ...
    [, PRIMARY KEY (column, ...)]
)
DROP TABLE [IF EXISTS] name, ... [CASCADE | RESTRICT]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tailrace.model.errors import SqlSyntaxError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.grammar.columns import ColumnDefinition, DefinitionReader
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.grammar.selects import parse_definition
from tailrace.sql.statements import CreateTableStatement, DropTableStatement, Query, Statement

_CLAUSES = {
    "partspec": "PARTITION BY",
    "inhRelations": "INHERITS",
    "options": "WITH",
    "tablespacename": "TABLESPACE",
    "accessMethod": "USING",
    "ofTypename": "OF",
}
_PERSISTENT = "p"


def is_definition(tokens: Sequence[SqlToken]) -> bool:
    """Return whether a statement is one of those that this module reads."""
    return len(tokens) > 1 and tokens[0].is_word("create", "drop") and tokens[1].is_word("table")


def read_definition(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Statement:
    """Read a statement that defines tables. `source` is the whole text of the request, in which the tokens are."""
    parsed = parse_definition(tokens, source, limits)
    ((kind, fields),) = parsed.tree.items()
    match kind:
        case "CreateStmt":
            statement: Statement = _create_table(fields, parsed)
        case "DropStmt":
            statement = _drop_table(fields, parsed)
        case _:
            place = parsed.line, parsed.column
            raise UnsupportedSqlError("this form of CREATE TABLE is not supported; see docs/reference/sql.md", *place)
    return msgspec.structs.replace(statement, line=parsed.line, column=parsed.column)


def _create_table(fields: Mapping[str, Any], parsed: Query) -> Statement:
    reader = DefinitionReader(parsed)
    relation = fields["relation"]
    name = ".".join(relation[part] for part in ("catalogname", "schemaname", "relname") if part in relation)
    for clause, written in _CLAUSES.items():
        if clause in fields:
            raise reader.unsupported(f"{written} of CREATE TABLE is not supported; leave it out")
    if relation.get("relpersistence", _PERSISTENT) != _PERSISTENT or fields.get("oncommit", "ONCOMMIT_NOOP") != "ONCOMMIT_NOOP":
        raise reader.unsupported("temporary and unlogged tables are not supported; all tables are durable")
    columns: dict[str, ColumnDefinition] = {}
    key: Sequence[str] = ()
    for element in fields.get("tableElts", ()):
        ((kind, part),) = element.items()
        location = part.get("location", -1)
        if kind == "ColumnDef":
            column = reader.column(part, name)
            if column.column.name in columns:
                raise reader.error(
                    f"column {column.column.name!r} is defined twice; remove one definition", location, sqlstate="42701"
                )
            columns[column.column.name] = column
            if column.is_key and key:
                raise reader.two_keys(name, location)
            key = (column.column.name,) if column.is_key else key
        elif kind != "Constraint":
            raise reader.unsupported("LIKE is not supported; write the columns", location)
        elif part["contype"] != "CONSTR_PRIMARY":
            raise reader.unsupported_constraint(part["contype"], location)
        elif key:
            raise reader.two_keys(name, location)
        else:
            key = _names(part.get("keys", ()))
            for column_name in key:
                if key.count(column_name) > 1:
                    raise reader.error(
                        f"column {column_name!r} is in the primary key twice; name it once", location, sqlstate="42701"
                    )
    if not columns:
        raise reader.error(f"table {name!r} has no columns; add at least one", relation.get("location", -1), SqlSyntaxError)
    return CreateTableStatement(
        text=parsed.text,
        name=name,
        columns=tuple(one.column for one in columns.values()),
        primary_key=tuple(key),
        if_not_exists=fields.get("if_not_exists", False),
    )


def _drop_table(fields: Mapping[str, Any], parsed: Query) -> Statement:
    names = [".".join(_names(one["List"]["items"])) for one in fields["objects"]]
    return DropTableStatement(
        text=parsed.text,
        names=tuple(dict.fromkeys(names)),
        if_exists=fields.get("missing_ok", False),
        cascade=fields.get("behavior") == "DROP_CASCADE",
    )


def _names(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["String"]["sval"] for item in items]
