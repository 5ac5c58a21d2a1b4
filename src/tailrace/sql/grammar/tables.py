"""CREATE and DROP of tables and their indexes, read by PostgreSQL's parser.

CREATE TABLE [IF NOT EXISTS] name (
    column type [[CONSTRAINT name] NOT NULL | NULL | DEFAULT expression | PRIMARY KEY | UNIQUE | CHECK (condition)
        | GENERATED ALWAYS | BY DEFAULT AS IDENTITY [(START WITH n INCREMENT BY n)]] ..., ...
    [, [CONSTRAINT name] PRIMARY KEY (column, ...) | UNIQUE (column, ...) | CHECK (condition)] ...
)
DROP TABLE [IF EXISTS] name, ... [CASCADE | RESTRICT]
CREATE [UNIQUE] INDEX [[IF NOT EXISTS] name] ON table (column [ASC | DESC], ...)
DROP INDEX [IF EXISTS] name, ...
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tailrace.model.errors import SqlSyntaxError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.grammar.columns import ColumnDefinition, DefinitionReader
from tailrace.sql.grammar.enum_types import read_type
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.grammar.selects import parse_definition
from tailrace.sql.statements import (
    CheckDefinition,
    CreateIndexStatement,
    CreateTableStatement,
    DropIndexStatement,
    DropTableStatement,
    Query,
    Statement,
    UniqueDefinition,
)

_CLAUSES = {
    "partspec": "PARTITION BY",
    "inhRelations": "INHERITS",
    "options": "WITH",
    "tablespacename": "TABLESPACE",
    "accessMethod": "USING",
    "ofTypename": "OF",
}
_INDEX_CLAUSES = {
    "whereClause": "WHERE",
    "indexIncludingParams": "INCLUDE",
    "options": "WITH",
    "tableSpace": "TABLESPACE",
    "concurrent": "CONCURRENTLY",
    "nulls_not_distinct": "NULLS NOT DISTINCT",
}
_PERSISTENT = "p"


def is_definition(tokens: Sequence[SqlToken]) -> bool:
    """Return whether a statement is one of those that this module reads."""
    if len(tokens) < 2 or not tokens[0].is_word("create", "drop"):
        return len(tokens) > 1 and tokens[0].is_word("alter") and tokens[1].is_word("type")
    return tokens[1].is_word("table", "index", "type") or (
        tokens[1].is_word("unique") and len(tokens) > 2 and tokens[2].is_word("index")
    )


def read_definition(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Statement:
    """Read a statement that defines tables. `source` is the whole text of the request, in which the tokens are."""
    parsed = parse_definition(tokens, source, limits)
    ((kind, fields),) = parsed.tree.items()
    of_type = read_type(kind, fields, parsed)
    if of_type is not None:
        return msgspec.structs.replace(of_type, line=parsed.line, column=parsed.column)
    match kind:
        case "CreateStmt":
            statement: Statement = _create_table(fields, parsed)
        case "DropStmt":
            statement = _drop(fields, parsed)
        case "IndexStmt":
            statement = _create_index(fields, parsed)
        case _:
            place = parsed.line, parsed.column
            raise UnsupportedSqlError("this form of CREATE TABLE is not supported; see docs/reference/sql.md", *place)
    return msgspec.structs.replace(statement, line=parsed.line, column=parsed.column)


def _create_table(fields: Mapping[str, Any], parsed: Query) -> Statement:
    reader = DefinitionReader(parsed)
    relation = fields["relation"]
    name = _relation_name(relation)
    for clause, written in _CLAUSES.items():
        if clause in fields:
            raise reader.unsupported(f"{written} of CREATE TABLE is not supported; leave it out")
    if relation.get("relpersistence", _PERSISTENT) != _PERSISTENT or fields.get("oncommit", "ONCOMMIT_NOOP") != "ONCOMMIT_NOOP":
        raise reader.unsupported("temporary and unlogged tables are not supported; all tables are durable")
    columns: dict[str, ColumnDefinition] = {}
    key: Sequence[str] = ()
    key_name: str | None = None
    checks: list[CheckDefinition] = []
    uniques: list[UniqueDefinition] = []
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
            if column.is_key:
                key, key_name = (column.column.name,), column.key_name
            checks += column.checks
            uniques += column.uniques
        elif kind != "Constraint":
            raise reader.unsupported("LIKE is not supported; write the columns", location)
        elif part["contype"] == "CONSTR_CHECK":
            checks.append(reader.check(part))
        elif part["contype"] == "CONSTR_UNIQUE":
            uniques.append(reader.unique(part, _names(part.get("keys", ()))))
        elif part["contype"] != "CONSTR_PRIMARY":
            raise reader.unsupported_constraint(part["contype"], location)
        elif key:
            raise reader.two_keys(name, location)
        else:
            key, key_name = _names(part.get("keys", ())), part.get("conname")
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
        key_name=key_name,
        checks=tuple(checks),
        uniques=tuple(uniques),
        enums=reader.enums,
        if_not_exists=fields.get("if_not_exists", False),
    )


def _create_index(fields: Mapping[str, Any], parsed: Query) -> Statement:
    reader = DefinitionReader(parsed)
    location = fields["relation"].get("location", -1)
    for clause, written in _INDEX_CLAUSES.items():
        if fields.get(clause):
            raise reader.unsupported(f"{written} of CREATE INDEX is not supported; leave it out", location)
    if fields.get("accessMethod", "btree") != "btree":
        raise reader.unsupported(f"indexes of the kind {fields['accessMethod']} are not supported; use btree", location)
    columns: list[str] = []
    descending = []
    for element in (one["IndexElem"] for one in fields["indexParams"]):
        if "name" not in element:
            raise reader.unsupported("indexes of expressions are not supported; name columns", location)
        if element.get("collation") or element.get("opclass") or element.get("opclassopts"):
            raise reader.unsupported("COLLATE and operator classes of an index are not supported; leave them out", location)
        columns.append(element["name"])
        if element.get("ordering") == "SORTBY_DESC":
            descending.append(element["name"])
    return CreateIndexStatement(
        text=parsed.text,
        name=fields.get("idxname"),
        table=_relation_name(fields["relation"]),
        columns=tuple(columns),
        descending=tuple(descending),
        is_unique=fields.get("unique", False),
        if_not_exists=fields.get("if_not_exists", False),
    )


def _relation_name(relation: Mapping[str, Any]) -> str:
    return ".".join(relation[part] for part in ("catalogname", "schemaname", "relname") if part in relation)


def _drop(fields: Mapping[str, Any], parsed: Query) -> Statement:
    names = [".".join(_names(one["List"]["items"])) for one in fields["objects"]]
    if fields["removeType"] == "OBJECT_INDEX":
        if fields.get("concurrent"):
            raise DefinitionReader(parsed).unsupported("CONCURRENTLY of DROP INDEX is not supported; leave it out")
        return DropIndexStatement(
            text=parsed.text, names=tuple(dict.fromkeys(names)), if_exists=fields.get("missing_ok", False)
        )
    return DropTableStatement(
        text=parsed.text,
        names=tuple(dict.fromkeys(names)),
        if_exists=fields.get("missing_ok", False),
        cascade=fields.get("behavior") == "DROP_CASCADE",
    )


def _names(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["String"]["sval"] for item in items]
