"""System tables by their names: `system.*`, `information_schema` and `pg_catalog`."""

from collections.abc import Sequence

import pyarrow as pa

from tailrace.broker.broker import Broker
from tailrace.sql.analysis.types import INT4, INT8, JSONB, TEXT, TIMESTAMPTZ, SqlType
from tailrace.sql.select.information_schema import (
    CATALOG_RELATIONS,
    INFORMATION_SCHEMA,
    PG_CATALOG,
    CatalogRelation,
    CatalogState,
)
from tailrace.sql.select.system import NAMESPACE, SYSTEM_TABLES, ReadRows, SystemTable


def is_system_name(name: str) -> bool:
    """Return whether the name is that of a system table, or would be if there were one."""
    return name.lower().partition(".")[0] in (NAMESPACE, INFORMATION_SCHEMA, PG_CATALOG) or find_system(name) is not None


def find_system(name: str) -> tuple[str, SystemTable] | None:
    """Return a system table by its name, with the name by which it is kept. PostgreSQL's own need no namespace."""
    folded = name.lower()
    namespace, _, rest = folded.partition(".")
    if namespace == NAMESPACE and rest in SYSTEM_TABLES:
        return rest, SYSTEM_TABLES[rest]
    for key in (folded, f"{PG_CATALOG}.{folded}"):
        relation = CATALOG_RELATIONS.get(key)
        if relation is not None:
            return key, _catalog_table(relation)
    return None


def found_system(key: str) -> SystemTable:
    """Return the system table of a name that `find_system` returned."""
    return SYSTEM_TABLES[key] if key in SYSTEM_TABLES else _catalog_table(CATALOG_RELATIONS[key])


_ARROW_TYPES = {"int4": pa.int32(), "bool": pa.bool_()}


def _catalog_table(relation: CatalogRelation) -> SystemTable:
    def read(broker: Broker) -> ReadRows:
        state = CatalogState.of(broker, TOPIC_TYPES)
        return lambda: relation.rows(state)

    columns = {name: _ARROW_TYPES.get(kind.name, pa.string()) for name, kind in relation.columns.items()}
    return SystemTable(columns, read, types=relation.columns)


TOPIC_TYPES: Sequence[tuple[str, SqlType]] = (
    ("partition", INT4),
    ("offset", INT8),
    ("cursor", INT8),
    ("timestamp", TIMESTAMPTZ),
    ("key", TEXT),
    ("value", TEXT),
    ("headers", JSONB),
    ("source_table", TEXT),
    ("op", TEXT),
    ("payload_mode", TEXT),
    ("message_id", TEXT),
)
"""The columns of every topic."""
