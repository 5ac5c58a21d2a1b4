"""`information_schema` and a few relations of `pg_catalog`, with the columns, types and values that PostgreSQL has in them.

The part of a name before its last dot is the schema, `public` if there is none. Topics of users are foreign tables. Texts of
expressions (defaults, checks, queries of views) are as they were written, where PostgreSQL prints them from their trees.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pgparse

from tailrace.broker.broker import Broker
from tailrace.model.table import Column, Table, TableIndex
from tailrace.model.view import ViewDefinition
from tailrace.sql.analysis.session_values import DATABASE, NAME, PUBLIC, USER
from tailrace.sql.analysis.types import BOOL, INT4, TEXT, SqlType, is_enum, of_column
from tailrace.sql.tables.database import quoted

INFORMATION_SCHEMA = "information_schema"
PG_CATALOG = "pg_catalog"
VARCHAR = SqlType("varchar")

CatalogRow = tuple[object, ...]
_SCALE_BITS = 0x7FF
_MAX_TEXT_BYTES = 1 << 30
_CHARACTER_BYTES = 4
_NUMBERS: Mapping[str, tuple[int, int | None]] = {
    "int2": (16, 0),
    "int4": (32, 0),
    "int8": (64, 0),
    "float4": (24, None),
    "float8": (53, None),
}
"""The bits and the scale of binary numbers."""
_TIMES = ("timestamp", "timestamptz", "time", "interval")
_MAXIMA = {"int2": (1 << 15) - 1, "int4": (1 << 31) - 1, "int8": (1 << 63) - 1}


class CatalogState(NamedTuple):
    """What is read on the event loop: what the principal of the request may describe."""

    tables: Sequence[Table]
    views: Sequence[ViewDefinition]
    topics: Sequence[str]
    topic_columns: Sequence[tuple[str, SqlType]]

    @classmethod
    def of(cls, broker: Broker, topic_columns: Sequence[tuple[str, SqlType]]) -> "CatalogState":
        may = broker.permissions.may
        tables = [table for table in broker.tables if may("describe", "table", table.name)]
        views = [view for view in broker.views if may("describe", "table", view.name)]
        topics = [live.topic.name for live in broker.topics.visible() if not live.is_reserved]
        return cls(tables, views, topics, topic_columns)


class CatalogRelation(NamedTuple):
    columns: Mapping[str, SqlType]
    rows: Callable[[CatalogState], Iterator[CatalogRow]]


def split_name(name: str) -> tuple[str, str]:
    """Return the schema and the name of a table, view or topic."""
    schema, _, base = name.rpartition(".")
    return schema or PUBLIC, base


def _tables(state: CatalogState) -> Iterator[CatalogRow]:
    named = [(table.name, "BASE TABLE", "YES") for table in state.tables]
    named += [(view.name, "VIEW", "NO") for view in state.views]
    named += [(topic, "FOREIGN", "YES") for topic in state.topics]
    for name, kind, is_insertable in named:
        yield DATABASE, *split_name(name), kind, None, None, None, None, None, is_insertable, "NO", None


def _columns(state: CatalogState) -> Iterator[CatalogRow]:
    for table in state.tables:
        for place, column in enumerate(table.columns, 1):
            is_nullable = column.nullable and column.name not in table.primary_key and column.identity is None
            yield _column(table.name, column.name, place, of_column(column.type), is_nullable, "YES", table, column)
    for view in state.views:
        for place, shown in enumerate(view.columns, 1):
            # PostgreSQL does not know the digits of a number that is computed.
            kind = SqlType(shown.type, shown.precision, shown.scale, shown.length)
            yield _column(view.name, shown.name, place, kind, True, "NO")
    for topic in state.topics:
        for place, (name, kind) in enumerate(state.topic_columns, 1):
            yield _column(topic, name, place, kind, True, "NO")


def _column(
    relation: str,
    name: str,
    place: int,
    kind: SqlType,
    is_nullable: bool,
    is_updatable: str,
    table: Table | None = None,
    column: Column | None = None,
) -> CatalogRow:
    element = kind.element if kind.is_array else kind
    # An enum has the namespace in its name.
    udt_schema, udt = split_name(str(element)) if is_enum(element.name) else (PG_CATALOG, element.name)
    udt = f"_{udt}" if kind.is_array else udt
    shown = "USER-DEFINED" if is_enum(kind.name) else str(kind)
    maximum_length = octets = precision = radix = scale = digits = None
    if kind.name in _NUMBERS:
        (precision, scale), radix = _NUMBERS[kind.name], 2
    elif kind.name == "numeric":
        # PostgreSQL shows the 11 bits in which it keeps a scale, of a negative one too.
        precision, radix, scale = kind.precision, 10, None if kind.scale is None else kind.scale & _SCALE_BITS
    elif kind.name in ("text", "varchar", "bpchar"):
        maximum_length = kind.length
        octets = _MAX_TEXT_BYTES if kind.length is None else _CHARACTER_BYTES * kind.length
    elif kind.name == "date":
        digits = 0
    elif kind.name in _TIMES:
        digits = 6
    default = None if column is None else column.default
    identity: CatalogRow = ("NO", None, None, None, None, None, "NO")
    if column is not None and column.identity is not None and table is not None:
        if column.identity.kind == "serial":
            default = f"nextval('{split_name(table.name)[1]}_{column.name}_seq'::regclass)"
        else:
            generation = column.identity.kind.upper().replace("_", " ")
            numbers = column.identity.start, column.identity.increment, _MAXIMA.get(kind.name), 1
            identity = ("YES", generation, *map(str, numbers), "NO")
    return (
        *(DATABASE, *split_name(relation), name, place, default, "YES" if is_nullable else "NO"),
        *("ARRAY" if kind.is_array else shown, maximum_length, octets, precision, radix, scale, digits),
        *([None] * 11),
        *(DATABASE, udt_schema, udt, None, None, None, None, str(place), "NO", *identity, "NEVER", None, is_updatable),
    )


class _Constraint(NamedTuple):
    table: Table
    name: str
    kind: str
    columns: Sequence[str]
    clause: str | None = None


def _constraints(state: CatalogState) -> Iterator[_Constraint]:
    for table in state.tables:
        base = split_name(table.name)[1]
        key = next(iter(table.unique_keys))
        yield _Constraint(table, key, "PRIMARY KEY", table.primary_key)
        for index in table.indexes:
            if index.is_constraint:
                yield _Constraint(table, index.name, "UNIQUE", index.columns)
        for check in table.checks:
            yield _Constraint(table, check.name, "CHECK", _columns_in(check.expression), f"({check.expression})")
        for column in table.columns:
            if not column.nullable or column.name in table.primary_key or column.identity is not None:
                clause = f"{_written(column.name)} IS NOT NULL"
                yield _Constraint(table, f"{base}_{column.name}_not_null", "CHECK", [column.name], clause)


def _written(name: str) -> str:
    """Return a name with quotes if it needs them."""
    return name if name.isascii() and name.isidentifier() and name.islower() else quoted(name)


def _columns_in(expression: str) -> list[str]:
    found: dict[str, None] = {}
    waiting: list[Any] = list(pgparse.parse(f"SELECT ({expression}\n)"))
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            parts = node.get("ColumnRef", {}).get("fields", ())
            if parts and "String" in parts[-1]:
                found[parts[-1]["String"]["sval"]] = None
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return list(found)


def _table_constraints(state: CatalogState) -> Iterator[CatalogRow]:
    for one in _constraints(state):
        schema, name = split_name(one.table.name)
        nulls = "YES" if one.kind == "UNIQUE" else None
        yield DATABASE, schema, one.name, DATABASE, schema, name, one.kind, "NO", "NO", "YES", nulls


def _key_column_usage(state: CatalogState) -> Iterator[CatalogRow]:
    for one in _constraints(state):
        if one.kind != "CHECK":
            schema, name = split_name(one.table.name)
            for place, column in enumerate(one.columns, 1):
                yield DATABASE, schema, one.name, DATABASE, schema, name, column, place, None


def _constraint_column_usage(state: CatalogState) -> Iterator[CatalogRow]:
    for one in _constraints(state):
        schema, name = split_name(one.table.name)
        for column in one.columns:
            yield DATABASE, schema, name, column, DATABASE, schema, one.name


def _check_constraints(state: CatalogState) -> Iterator[CatalogRow]:
    for one in _constraints(state):
        if one.kind == "CHECK":
            yield DATABASE, split_name(one.table.name)[0], one.name, one.clause


def _views(state: CatalogState) -> Iterator[CatalogRow]:
    for view in state.views:
        yield DATABASE, *split_name(view.name), view.text, "NONE", "NO", "NO", "NO", "NO", "NO"


def _schemata(state: CatalogState) -> Iterator[CatalogRow]:
    names = [*(table.name for table in state.tables), *(view.name for view in state.views), *state.topics]
    for schema in sorted({PUBLIC, INFORMATION_SCHEMA, PG_CATALOG, "system", *(split_name(name)[0] for name in names)}):
        yield DATABASE, schema, USER, None, None, None, None


def _pg_tables(state: CatalogState) -> Iterator[CatalogRow]:
    for table in state.tables:
        yield *split_name(table.name), USER, None, True, False, False, False


def _pg_views(state: CatalogState) -> Iterator[CatalogRow]:
    for view in state.views:
        yield *split_name(view.name), USER, view.text


def _pg_indexes(state: CatalogState) -> Iterator[CatalogRow]:
    for table in state.tables:
        schema, name = split_name(table.name)
        key = TableIndex(next(iter(table.unique_keys)), table.primary_key, is_unique=True)
        for index in (key, *table.indexes):
            columns = ", ".join(_written(one) + (" DESC" if one in index.descending else "") for one in index.columns)
            kind = "UNIQUE INDEX" if index.is_unique else "INDEX"
            text = f"CREATE {kind} {_written(index.name)} ON {_written(schema)}.{_written(name)} USING btree ({columns})"
            yield schema, name, index.name, None, text


def _named(text: str) -> dict[str, SqlType]:
    """Read columns from a text of names; `name` stands for itself, and other types are written behind a colon."""
    types = {"": NAME, "v": VARCHAR, "i": INT4, "b": BOOL, "t": TEXT}
    return {word.partition(":")[0]: types[word.partition(":")[2]] for word in text.split()}


_TABLE_NAME = "table_catalog table_schema table_name"
_CONSTRAINT_NAME = "constraint_catalog constraint_schema constraint_name"
CATALOG_RELATIONS: Mapping[str, CatalogRelation] = {
    f"{INFORMATION_SCHEMA}.tables": CatalogRelation(
        _named(
            f"{_TABLE_NAME} table_type:v self_referencing_column_name reference_generation:v user_defined_type_catalog"
            " user_defined_type_schema user_defined_type_name is_insertable_into:v is_typed:v commit_action:v"
        ),
        _tables,
    ),
    f"{INFORMATION_SCHEMA}.columns": CatalogRelation(
        _named(
            f"{_TABLE_NAME} column_name ordinal_position:i column_default:v is_nullable:v data_type:v"
            " character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i"
            " numeric_scale:i datetime_precision:i interval_type:v interval_precision:i character_set_catalog"
            " character_set_schema character_set_name collation_catalog collation_schema collation_name domain_catalog"
            " domain_schema domain_name udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name"
            " maximum_cardinality:i dtd_identifier is_self_referencing:v is_identity:v identity_generation:v"
            " identity_start:v identity_increment:v identity_maximum:v identity_minimum:v identity_cycle:v"
            " is_generated:v generation_expression:v is_updatable:v"
        ),
        _columns,
    ),
    f"{INFORMATION_SCHEMA}.table_constraints": CatalogRelation(
        _named(
            f"{_CONSTRAINT_NAME} {_TABLE_NAME} constraint_type:v is_deferrable:v initially_deferred:v enforced:v"
            " nulls_distinct:v"
        ),
        _table_constraints,
    ),
    f"{INFORMATION_SCHEMA}.key_column_usage": CatalogRelation(
        _named(f"{_CONSTRAINT_NAME} {_TABLE_NAME} column_name ordinal_position:i position_in_unique_constraint:i"),
        _key_column_usage,
    ),
    f"{INFORMATION_SCHEMA}.constraint_column_usage": CatalogRelation(
        _named(f"{_TABLE_NAME} column_name {_CONSTRAINT_NAME}"), _constraint_column_usage
    ),
    f"{INFORMATION_SCHEMA}.check_constraints": CatalogRelation(
        _named(f"{_CONSTRAINT_NAME} check_clause:v"), _check_constraints
    ),
    f"{INFORMATION_SCHEMA}.views": CatalogRelation(
        _named(
            f"{_TABLE_NAME} view_definition:v check_option:v is_updatable:v is_insertable_into:v is_trigger_updatable:v"
            " is_trigger_deletable:v is_trigger_insertable_into:v"
        ),
        _views,
    ),
    f"{INFORMATION_SCHEMA}.schemata": CatalogRelation(
        _named(
            "catalog_name schema_name schema_owner default_character_set_catalog default_character_set_schema"
            " default_character_set_name sql_path:v"
        ),
        _schemata,
    ),
    f"{PG_CATALOG}.pg_tables": CatalogRelation(
        _named("schemaname tablename tableowner tablespace hasindexes:b hasrules:b hastriggers:b rowsecurity:b"), _pg_tables
    ),
    f"{PG_CATALOG}.pg_views": CatalogRelation(_named("schemaname viewname viewowner definition:t"), _pg_views),
    f"{PG_CATALOG}.pg_indexes": CatalogRelation(_named("schemaname tablename indexname tablespace indexdef:t"), _pg_indexes),
}
"""By their names with the schema."""
