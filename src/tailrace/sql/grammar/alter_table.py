"""ALTER TABLE and TRUNCATE, read by PostgreSQL's parser.

ALTER TABLE [IF EXISTS] name action, ...
    ADD [COLUMN] [IF NOT EXISTS] column type [NOT NULL] [DEFAULT expression]
    DROP [COLUMN] [IF EXISTS] column [RESTRICT]
    ALTER [COLUMN] column [SET DATA] TYPE type
    ALTER [COLUMN] column SET DEFAULT expression | DROP DEFAULT
    ALTER [COLUMN] column SET NOT NULL | DROP NOT NULL
    ADD [CONSTRAINT name] CHECK (condition) | UNIQUE (column, ...)
    DROP CONSTRAINT [IF EXISTS] name [RESTRICT]
ALTER TABLE [IF EXISTS] name RENAME [COLUMN] column TO new_name
TRUNCATE [TABLE] name, ... [RESTART IDENTITY | CONTINUE IDENTITY] [RESTRICT]
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tailrace.model.errors import UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.sql.grammar.columns import DefinitionReader
from tailrace.sql.grammar.lexer import SqlToken
from tailrace.sql.grammar.selects import parse_definition
from tailrace.sql.statements import (
    AddColumn,
    AddConstraint,
    AlterAction,
    AlterTableStatement,
    DropColumn,
    DropConstraint,
    DropNotNull,
    Query,
    RenameColumn,
    SetColumnDefault,
    SetColumnType,
    SetNotNull,
    Statement,
    TruncateStatement,
)
from tailrace.sql.text_positions import position_at

Node = Mapping[str, Any]


def is_alteration(tokens: Sequence[SqlToken]) -> bool:
    """Return whether a statement is one of those that this module reads."""
    if tokens[0].is_word("truncate"):
        return True
    return len(tokens) > 1 and tokens[0].is_word("alter") and tokens[1].is_word("table")


def read_alteration(tokens: Sequence[SqlToken], source: str, limits: Limits) -> Statement:
    """Read ALTER TABLE or TRUNCATE. `source` is the whole text of the request, in which the tokens are."""
    parsed = parse_definition(tokens, source, limits)
    ((kind, fields),) = parsed.tree.items()
    match kind:
        case "AlterTableStmt" if fields.get("objtype") == "OBJECT_TABLE":
            statement: Statement = _altered(parsed, fields, _AlterReader(parsed, tokens, source).actions(fields))
        case "RenameStmt" if fields.get("renameType") == "OBJECT_COLUMN":
            position = parsed.line, parsed.column
            rename = RenameColumn(name=fields["subname"], new_name=fields["newname"], position=position)
            statement = _altered(parsed, fields, (rename,))
        case "TruncateStmt":
            names = tuple(dict.fromkeys(_name(relation["RangeVar"]) for relation in fields["relations"]))
            statement = TruncateStatement(text=parsed.text, names=names, restart_identity=fields.get("restart_seqs", False))
        case _:
            raise UnsupportedSqlError(_refusal(kind, fields), parsed.line, parsed.column)
    return msgspec.structs.replace(statement, line=parsed.line, column=parsed.column)


def _altered(parsed: Query, fields: Node, actions: tuple[AlterAction, ...]) -> AlterTableStatement:
    name, if_exists = _name(fields["relation"]), fields.get("missing_ok", False)
    return AlterTableStatement(text=parsed.text, name=name, actions=actions, if_exists=if_exists)


def _refusal(kind: str, fields: Node) -> str:
    if kind == "RenameStmt" and fields.get("renameType") == "OBJECT_TABLE":
        return (
            "a table can't be renamed, because the topic of its changes has its name, by which consumers and routes know it;"
            " create a table of the new name and INSERT the rows into it"
        )
    if kind == "RenameStmt":
        return "only columns can be renamed; see docs/reference/sql.md"
    return "this form of ALTER TABLE is not supported; see docs/reference/sql.md"


def _name(relation: Node) -> str:
    return ".".join(relation[part] for part in ("catalogname", "schemaname", "relname") if part in relation)


class _AlterReader:
    def __init__(self, parsed: Query, tokens: Sequence[SqlToken], source: str) -> None:
        self._definitions = DefinitionReader(parsed)
        self._table = ""
        self._source = source
        self._written = _actions_in(tokens)

    def actions(self, fields: Node) -> tuple[AlterAction, ...]:
        self._table = _name(fields["relation"])
        commands = [command["AlterTableCmd"] for command in fields["cmds"]]
        return tuple(
            action
            for command, written in zip(commands, self._written, strict=True)
            for action in self._actions(command, written)
        )

    def _actions(self, fields: Node, written: Sequence[SqlToken]) -> Iterator[AlterAction]:
        """Yield an action, and behind a new column the constraints that stand with it."""
        position = position_at(self._source, written[0].start)
        if fields["subtype"] != "AT_AddColumn":
            yield self._action(fields, written)
            return
        defined = self._definitions.column(fields["def"]["ColumnDef"], self._table)
        if defined.is_key:
            raise self._definitions.two_keys(self._table, defined.location)
        if defined.column.identity is not None:
            raise UnsupportedSqlError("ADD COLUMN with an identity is not supported; create it with the table", *position)
        is_optional = fields.get("missing_ok", False)
        if is_optional and (defined.checks or defined.uniques):
            raise UnsupportedSqlError("IF NOT EXISTS of a column with constraints is not supported; add them apart", *position)
        yield AddColumn(name=defined.column.name, column=defined.column, if_not_exists=is_optional, position=position)
        for check in defined.checks:
            yield AddConstraint(name=check.name or "", check=check, position=position)
        for unique in defined.uniques:
            yield AddConstraint(name=unique.name or "", unique=unique, position=position)

    def _constraint(self, constraint: Node, position: tuple[int, int]) -> AlterAction:
        name = constraint.get("conname", "")
        match constraint["contype"]:
            case "CONSTR_CHECK":
                return AddConstraint(name=name, check=self._definitions.check(constraint), position=position)
            case "CONSTR_UNIQUE" if "indexname" not in constraint:
                columns = [key["String"]["sval"] for key in constraint.get("keys", ())]
                return AddConstraint(name=name, unique=self._definitions.unique(constraint, columns), position=position)
            case "CONSTR_PRIMARY":
                raise self._definitions.two_keys(self._table, constraint.get("location", -1))
        raise self._definitions.unsupported_constraint(constraint["contype"], constraint.get("location", -1))

    def _action(self, fields: Node, written: Sequence[SqlToken]) -> AlterAction:
        position = position_at(self._source, written[0].start)
        name = fields.get("name", "")
        definition = fields.get("def", {})
        subtype = fields["subtype"]
        if fields.get("behavior") == "DROP_CASCADE":
            raise UnsupportedSqlError("CASCADE of ALTER TABLE is not supported; drop first what uses the column", *position)
        match subtype:
            case "AT_AddConstraint":
                return self._constraint(definition["Constraint"], position)
            case "AT_DropConstraint":
                return DropConstraint(name=name, if_exists=fields.get("missing_ok", False), position=position)
            case "AT_DropColumn":
                return DropColumn(name=name, if_exists=fields.get("missing_ok", False), position=position)
            case "AT_AlterColumnType":
                column = definition["ColumnDef"]
                if "raw_default" in column:
                    raise UnsupportedSqlError(
                        "USING of ALTER COLUMN TYPE is not supported; add a column of the new type and UPDATE it", *position
                    )
                if "collClause" in column:
                    raise UnsupportedSqlError("COLLATE is not supported; text is ordered by its bytes", *position)
                return SetColumnType(name=name, type=self._definitions.type(column["typeName"]), position=position)
            case "AT_ColumnDefault":
                return SetColumnDefault(name=name, default=self._default(written) if definition else None, position=position)
            case "AT_SetNotNull":
                return SetNotNull(name=name, position=position)
            case "AT_DropNotNull":
                return DropNotNull(name=name, position=position)
        what = " ".join(token.text for token in written[:3])
        raise UnsupportedSqlError(f"{what} is not supported by ALTER TABLE; see docs/reference/sql.md", *position)

    def _default(self, written: Sequence[SqlToken]) -> str:
        """Return the expression behind SET DEFAULT as it was written."""
        at = next(at for at, token in enumerate(written) if token.is_word("default")) + 1
        return self._source[written[at].start : written[-1].end]


def _actions_in(tokens: Sequence[SqlToken]) -> list[list[SqlToken]]:
    """Return the tokens of each action: what stands behind the table's name, between the commas outside of brackets."""
    at = 2
    if [token.text.lower() for token in tokens[at : at + 2]] == ["if", "exists"]:
        at += 2
    at += tokens[at].is_word("only")
    at += 1
    while at + 1 < len(tokens) and tokens[at].text == ".":
        at += 2
    at += tokens[at].text == "*"
    actions: list[list[SqlToken]] = [[]]
    depth = 0
    for token in tokens[at:]:
        if token.kind == "operator":
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if token.text == "," and not depth:
                actions.append([])
                continue
        actions[-1].append(token)
    return actions
