"""Columns as CREATE TABLE and ALTER TABLE define them, read from the tree of PostgreSQL's parser."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Column, ColumnKind, ColumnType, Identity
from tailrace.sql.grammar.lexer import SqlToken, read_tokens
from tailrace.sql.statements import CheckDefinition, ExpressionText, Query, UniqueDefinition

Node = Mapping[str, Any]

_MAX_PRECISION = 1000
_MAX_LENGTH = 10_485_760
"""That of PostgreSQL's varchar(n) and char(n)."""
_UNDEFINED_TYPE = "42704"
_INVALID_PARAMETER = "22023"
TYPES: Mapping[str, ColumnKind] = {
    "BOOLEAN": "boolean",
    "BOOL": "boolean",
    "SMALLINT": "smallint",
    "INT2": "smallint",
    "INTEGER": "integer",
    "INT": "integer",
    "INT4": "integer",
    "BIGINT": "bigint",
    "INT8": "bigint",
    "DOUBLE PRECISION": "double",
    "DOUBLE": "double",
    "FLOAT8": "double",
    "FLOAT": "double",
    "DECIMAL": "decimal",
    "NUMERIC": "decimal",
    "REAL": "real",
    "FLOAT4": "real",
    "TEXT": "text",
    "VARCHAR": "text",
    "CHARACTER VARYING": "text",
    "STRING": "text",
    "CHAR": "char",
    "CHARACTER": "char",
    "BYTES": "bytes",
    "BYTEA": "bytes",
    "BLOB": "bytes",
    "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIME": "time",
    "TIME WITHOUT TIME ZONE": "time",
    "INTERVAL": "interval",
    "UUID": "uuid",
    "JSONB": "json",
    "JSON": "json",
}
"""The types of columns, by all names under which they can be written."""
_SERIALS: Mapping[str, ColumnKind] = {
    "smallserial": "smallint",
    "serial2": "smallint",
    "serial": "integer",
    "serial4": "integer",
    "bigserial": "bigint",
    "serial8": "bigint",
}
_UNSUPPORTED = {
    "timetz": "use timestamptz, or time without a time zone",
    "money": "use decimal(p, s)",
}
_CONSTRAINT_NAMES = {
    "CONSTR_FOREIGN": "REFERENCES",
    "CONSTR_GENERATED": "GENERATED AS",
    "CONSTR_EXCLUSION": "EXCLUDE",
}


class ColumnDefinition(NamedTuple):
    """A column with the constraints that stand behind it."""

    column: Column
    is_key: bool
    key_name: str | None
    checks: Sequence[CheckDefinition]
    uniques: Sequence[UniqueDefinition]
    location: int


class DefinitionReader:
    """Reads parts of a statement that defines something, and places errors in its text."""

    def __init__(self, parsed: Query) -> None:
        self._parsed = parsed
        self._tokens: Sequence[SqlToken] | None = None
        self.enums: dict[str, tuple[int, int]] = {}
        """The types of columns that are no types of PostgreSQL, with their places in the text."""

    def error(
        self, message: str, location: int = -1, kind: type[SqlError] = SqlError, *, sqlstate: str | None = None
    ) -> SqlError:
        """Return an error at a location of the tree."""
        return kind(message, *self._parsed.position_of(location), sqlstate=sqlstate)

    def unsupported(self, message: str, location: int = -1) -> SqlError:
        return self.error(message, location, UnsupportedSqlError)

    def column(self, fields: Node, table: str) -> ColumnDefinition:
        """Return the column of a `ColumnDef`."""
        name, location = fields["colname"], fields.get("location", -1)
        if "typeName" not in fields:
            raise self.error(f"column {name!r} has no type", location, SqlSyntaxError)
        if "collClause" in fields:
            raise self.unsupported(
                "COLLATE is not supported; text is ordered by its bytes", fields["collClause"].get("location", -1)
            )
        identity = self._serial(fields["typeName"])
        kind = ColumnType(_SERIALS[identity[0]]) if identity is not None else self.type(fields["typeName"])
        nullable: bool | None = None if identity is None else False
        numbered = None if identity is None else identity[1]
        default: str | None = None
        is_key, key_name = False, None
        checks: list[CheckDefinition] = []
        uniques: list[UniqueDefinition] = []
        for constraint in (one["Constraint"] for one in fields.get("constraints", ())):
            at = constraint.get("location", -1)
            match constraint["contype"]:
                case "CONSTR_NOTNULL" | "CONSTR_NULL" as null:
                    if nullable is (null == "CONSTR_NOTNULL"):
                        raise self.error(f"column {name!r} is both NULL and NOT NULL; use one of them", at, SqlSyntaxError)
                    nullable = null == "CONSTR_NULL"
                case "CONSTR_DEFAULT":
                    if default is not None:
                        raise self.error(f"column {name!r} has two defaults; use one of them", at, SqlSyntaxError)
                    default = self._default(constraint, fields["constraints"])
                case "CONSTR_PRIMARY":
                    if is_key:
                        raise self.two_keys(table, at)
                    is_key, key_name = True, constraint.get("conname")
                case "CONSTR_CHECK":
                    checks.append(self.check(constraint))
                case "CONSTR_UNIQUE":
                    uniques.append(self.unique(constraint, [name]))
                case "CONSTR_IDENTITY":
                    if numbered is not None:
                        raise self.error(f"column {name!r} is numbered twice; use one identity", at, SqlSyntaxError)
                    numbered = self._identity(constraint, kind)
                    if nullable:
                        raise self.error(f"column {name!r} is both NULL and an identity column", at, SqlSyntaxError)
                    nullable = False
                case other:
                    raise self.unsupported_constraint(other, at)
        if numbered is not None and default is not None:
            raise self.error(f"column {name!r} has both a default and an identity; use one of them", location, SqlSyntaxError)
        column = Column(name=name, type=kind, nullable=nullable is not False, default=default, identity=numbered)
        return ColumnDefinition(column, is_key, key_name, checks, uniques, location)

    def check(self, constraint: Node) -> CheckDefinition:
        """Return the CHECK of a `Constraint`."""
        location = constraint["location"]
        if constraint.get("is_no_inherit") or constraint.get("skip_validation"):
            raise self.unsupported("NO INHERIT and NOT VALID of CHECK are not supported; leave them out", location)
        tokens = self._tokens_from(location)
        opening = next(at for at, token in enumerate(tokens) if token.is_word("check")) + 1
        depth = 0
        for closing in range(opening, len(tokens)):
            token = tokens[closing]
            depth += (token.text == "(") - (token.text == ")") if token.kind == "operator" else 0
            if not depth:
                break
        inner = tokens[opening + 1 : closing]
        text = self._parsed.postgres_text[inner[0].start : inner[-1].end]
        place = self._parsed.position_at(inner[0].start)
        return CheckDefinition(constraint.get("conname"), ExpressionText(text, *place, len(inner)))

    def unique(self, constraint: Node, columns: Sequence[str]) -> UniqueDefinition:
        """Return the UNIQUE of a `Constraint` for these columns."""
        location = constraint.get("location", -1)
        if constraint.get("nulls_not_distinct"):
            raise self.unsupported("NULLS NOT DISTINCT is not supported; nulls are distinct", location)
        if constraint.get("including") or constraint.get("options") or constraint.get("deferrable"):
            raise self.unsupported("INCLUDE, WITH and DEFERRABLE of UNIQUE are not supported; leave them out", location)
        for column in columns:
            if columns.count(column) > 1:
                raise self.error(f"column {column!r} appears twice in unique constraint", location, sqlstate="42701")
        return UniqueDefinition(constraint.get("conname"), tuple(columns))

    def _serial(self, fields: Node) -> tuple[str, Identity] | None:
        """Return the identity of a column of the type SERIAL or one like it."""
        names = [part["String"]["sval"] for part in fields.get("names", ())]
        if len(names) != 1 or names[0] not in _SERIALS or fields.get("arrayBounds"):
            return None
        return names[0], Identity("serial")

    def _identity(self, constraint: Node, kind: ColumnType) -> Identity:
        location = constraint.get("location", -1)
        if kind.kind not in _SERIALS.values():
            raise self.error("identity column type must be smallint, integer, or bigint", location, sqlstate=_INVALID_PARAMETER)
        numbers = {"start": 1, "increment": 1}
        for option in (one["DefElem"] for one in constraint.get("options", ())):
            name = option["defname"]
            if name not in numbers:
                raise self.unsupported(
                    f"{name.upper()} of an identity column is not supported; use START WITH and INCREMENT BY", location
                )
            numbers[name] = _whole(option["arg"])
        if not numbers["increment"]:
            raise self.error("INCREMENT must not be zero", location, sqlstate=_INVALID_PARAMETER)
        is_given = any(one["DefElem"]["defname"] == "start" for one in constraint.get("options", ()))
        if numbers["increment"] < 0 and not is_given:
            numbers["start"] = -1
        kinds: Mapping[str, Literal["always", "by_default"]] = {"a": "always", "d": "by_default"}
        return Identity(kinds[constraint["generated_when"]], **numbers)

    def two_keys(self, table: str, location: int) -> SqlError:
        """Return the error for a table with more than one primary key."""
        return self.error(
            f"multiple primary keys for table {table!r} are not allowed; write a key of several columns as PRIMARY KEY (a, b)",
            location,
            sqlstate="42P16",
        )

    def unsupported_constraint(self, kind: str, location: int) -> SqlError:
        """Return the error for a constraint that tables can't have."""
        written = _CONSTRAINT_NAMES.get(kind) or kind.removeprefix("CONSTR_").removeprefix("ATTR_").replace("_", " ")
        return self.unsupported(f"{written} is not supported; see docs/reference/sql.md", location)

    def type(self, fields: Node) -> ColumnType:
        """Return the type of a `TypeName`."""
        location = fields.get("location", -1)
        name = ".".join(part["String"]["sval"] for part in fields.get("names", ())).removeprefix("pg_catalog.")
        kind = _KINDS.get(name)
        if name in _UNSUPPORTED:
            raise self.unsupported(f"columns of the type {name} are not supported; {_UNSUPPORTED[name]}", location)
        if fields.get("setof"):
            raise self.unsupported("a column can't have a type with SETOF; use an array", location)
        modifiers = [self._modifier(one, location) for one in fields.get("typmods", ())]
        if kind is None:
            # Whether there is such a type is known where the table is made.
            self.enums.setdefault(name, self._parsed.position_of(location))
            found = ColumnType("enum", name=name)
        elif kind == "decimal":
            found = self._decimal(modifiers, location)
        elif name in ("varchar", "bpchar"):
            found = self._text(name, modifiers, location)
        elif modifiers:
            raise self.unsupported(f"a length or precision of {name} is not supported; leave it out", location)
        else:
            found = ColumnType(kind)
        for _ in fields.get("arrayBounds", ()):
            found = ColumnType("list", element=found)
        return found

    def _modifier(self, node: Node, location: int) -> int:
        found = node.get("A_Const", {}).get("ival")
        if found is None:
            raise self.error("type modifiers must be whole numbers", location, SqlSyntaxError)
        return int(found.get("ival", 0))

    def _text(self, name: str, modifiers: Sequence[int], location: int) -> ColumnType:
        if len(modifiers) > 1 or any(not 1 <= length <= _MAX_LENGTH for length in modifiers):
            shown = "varchar" if name == "varchar" else "char"
            raise self.error(
                f"length for type {shown} must be at least 1 and cannot exceed {_MAX_LENGTH}",
                location,
                sqlstate=_INVALID_PARAMETER,
            )
        if not modifiers:
            if name == "bpchar":
                raise self.unsupported("bpchar without a length is not supported; use char(n) or text", location)
            return ColumnType("text")
        return ColumnType("text" if name == "varchar" else "char", length=modifiers[0])

    def _decimal(self, modifiers: Sequence[int], location: int) -> ColumnType:
        if len(modifiers) > 2:
            raise self.error("invalid NUMERIC type modifier", location, sqlstate=_INVALID_PARAMETER)
        if not modifiers:
            return ColumnType("decimal")
        precision, scale = (*modifiers, 0)[:2]
        if not 1 <= precision <= _MAX_PRECISION:
            message = f"NUMERIC precision {precision} must be between 1 and {_MAX_PRECISION}"
            raise self.error(message, location, sqlstate=_INVALID_PARAMETER)
        if not -_MAX_PRECISION <= scale <= _MAX_PRECISION:
            message = f"NUMERIC scale {scale} must be between -{_MAX_PRECISION} and {_MAX_PRECISION}"
            raise self.error(message, location, sqlstate=_INVALID_PARAMETER)
        return ColumnType("decimal", precision=precision, scale=scale)

    def _default(self, constraint: Node, constraints: Sequence[Node]) -> str:
        start = constraint["location"]
        ends = [one["Constraint"].get("location", -1) for one in constraints]
        return self._text_behind("default", start, min((end for end in ends if end > start), default=None))

    def _text_behind(self, keyword: str, start: int, end: int | None) -> str:
        """Return what is written behind a keyword, up to a location, or to the comma or bracket that ends the definition."""
        text = self._parsed.postgres_text
        last = len(text) if end is None else self._index(end)
        tokens = [token for token in self._tokens_from(start) if token.start < last]
        at = next(place for place, token in enumerate(tokens) if token.is_word(keyword)) + 1
        depth = 0
        until = at
        for token in tokens[at:]:
            depth += (token.text in ("(", "[")) - (token.text in (")", "]")) if token.kind == "operator" else 0
            if depth < 0 or (not depth and token.kind == "operator" and token.text == ","):
                break
            until += 1
        return text[tokens[at].start : tokens[until - 1].end]

    def _tokens_from(self, location: int) -> Sequence[SqlToken]:
        if self._tokens is None:
            self._tokens = read_tokens(self._parsed.postgres_text)
        first = self._index(location)
        return [token for token in self._tokens if token.start >= first]

    def _index(self, location: int) -> int:
        return len(self._parsed.postgres_text.encode()[:location].decode(errors="ignore"))


def unknown_type(name: str, place: tuple[int, int] | tuple[()] = ()) -> SqlError:
    """Return the error for a column of a type that does not exist."""
    hint = did_you_mean(name, sorted({written.lower() for written in TYPES}))
    return SqlError(
        f"type {name!r} does not exist{hint}; use {', '.join(sorted(set(TYPES.values())))}, one of these and [], or an enum",
        *place,
        sqlstate=_UNDEFINED_TYPE,
    )


def _whole(node: Node) -> int:
    """Return the number of an option, which is a float in the tree if it is large."""
    ((kind, fields),) = node.items()
    return int(fields.get("ival", 0)) if kind == "Integer" else int(fields["fval"])


_KINDS: Mapping[str, ColumnKind] = {name.lower(): kind for name, kind in TYPES.items()} | {"bpchar": "char"}
"""The kinds by the names in trees, which have `int4` for `int` and `float8` for `double precision`."""


def is_known_type(name: str) -> bool:
    """Return whether a type of this name is built in."""
    return name in _KINDS or name in _SERIALS or name in _UNSUPPORTED or name.endswith("[]")
