"""CREATE TYPE, ALTER TYPE and DROP TYPE of enums, read by PostgreSQL's parser.

CREATE TYPE name AS ENUM ('label', ...)
ALTER TYPE name ADD VALUE [IF NOT EXISTS] 'label' [BEFORE | AFTER 'label']
DROP TYPE [IF EXISTS] name, ... [RESTRICT]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.model.errors import UnsupportedSqlError
from tailrace.sql.statements import AlterTypeStatement, CreateTypeStatement, DropTypeStatement, Query, Statement

Node = Mapping[str, Any]


def read_type(kind: str, fields: Node, parsed: Query) -> Statement | None:
    """Return the statement, or `None` if it is another one."""
    place = parsed.line, parsed.column
    match kind:
        case "CreateEnumStmt":
            labels = tuple(label["String"].get("sval", "") for label in fields.get("vals", ()))
            return CreateTypeStatement(text=parsed.text, name=_name(fields["typeName"]), labels=labels)
        case "AlterEnumStmt" if "oldVal" not in fields:
            return AlterTypeStatement(
                text=parsed.text,
                name=_name(fields["typeName"]),
                label=fields.get("newVal", ""),
                neighbor=fields.get("newValNeighbor"),
                is_after=fields.get("newValIsAfter", False),
                if_not_exists=fields.get("skipIfNewValExists", False),
            )
        case "AlterEnumStmt":
            raise UnsupportedSqlError("RENAME VALUE is not supported: rows and events have the label; add another one", *place)
        case "DropStmt" if fields["removeType"] == "OBJECT_TYPE":
            if fields.get("behavior") == "DROP_CASCADE":
                raise UnsupportedSqlError("CASCADE of DROP TYPE is not supported; drop first what uses the type", *place)
            names = tuple(dict.fromkeys(_name(one["TypeName"]["names"]) for one in fields["objects"]))
            return DropTypeStatement(text=parsed.text, names=names, if_exists=fields.get("missing_ok", False))
        case "CompositeTypeStmt" | "CreateRangeStmt" | "DefineStmt" | "AlterTypeStmt" | "RenameStmt":
            raise UnsupportedSqlError("types are enums only: CREATE TYPE name AS ENUM ('a', 'b')", *place)
    return None


def _name(parts: Sequence[Node]) -> str:
    return ".".join(part["String"]["sval"] for part in parts)
