"""`table_changes('chat.messages' [, from_cursor [, to_cursor]])`: the changes of a table as rows of the table.

It is a subquery over the table's change topic: each image of a row that a change event holds becomes a row, with the column
types of the table and with `_change_type`, `_commit_version` (the cursor) and `_commit_timestamp` as Spark and Delta name them.
"""

from collections.abc import Sequence

from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.select.types import duckdb_type

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
META_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

TOPIC_COLUMNS_READ = ("offset", "cursor", "timestamp", "value")
"""What the subquery reads of the change topic."""


def changes_sql(table: Table, relation: str, wanted: Sequence[str], low: str | None, high: str | None) -> str:
    """In DuckDB's SQL, over the relation that holds the change topic. Only the wanted columns are taken from the events.

    `low` and `high` are the SQL of the cursors that bound it, both included.
    """
    columns = [_column(column) for column in table.columns if column.name in wanted]
    # What snapshots have read is no change.
    bounds = ["""json_extract_string("value", '$.op') <> 'read'"""]
    bounds += [f'"cursor" >= {low}'] if low is not None else []
    bounds += [f'"cursor" <= {high}'] if high is not None else []
    return f"""
        SELECT {"".join(f"{column}, " for column in columns)} {CHANGE_TYPE},
            "cursor" AS {COMMIT_VERSION}, "timestamp" AS {COMMIT_TIMESTAMP}
        FROM (
            SELECT "cursor", "timestamp", {CHANGE_TYPE},
                json_extract("value", CASE WHEN {CHANGE_TYPE} IN ('delete', 'update_preimage')
                    THEN '$.old' ELSE '$.new' END) AS image
            FROM (
                SELECT "cursor", "timestamp", "value", unnest(
                    CASE json_extract_string("value", '$.op')
                    WHEN 'update' THEN ['update_preimage', 'update_postimage']
                    WHEN 'insert' THEN ['insert'] ELSE ['delete'] END) AS {CHANGE_TYPE}
                FROM {relation} WHERE {" AND ".join(bounds)}
            )
        )"""  # noqa: S608


def _column(column: Column) -> str:
    path = "'$.\"" + column.name.replace("'", "''") + "\"'"
    return f"{_value(column.type, path)} AS {_quoted(column.name)}"


def _value(kind: ColumnType, path: str) -> str:
    text = f"json_extract_string(image, {path})"
    match kind.kind:
        case "text":
            return text
        case "bytes":
            return f"from_base64({text})"
        case "json":
            return f"CASE WHEN {text} IS NOT NULL THEN json_extract(image, {path}) END"
        case "list":
            return f"CAST({_items(kind, f'json_extract(image, {path})')} AS {duckdb_type(kind)})"
    return f"CAST({text} AS {duckdb_type(kind)})"


def _items(kind: ColumnType, json: str) -> str:
    """A list out of its JSON; bytes are base64 in it."""
    if kind.element is not None and kind.element.kind == "bytes":
        return f"list_transform(CAST({json} AS VARCHAR[]), lambda item: from_base64(item))"
    return json


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
