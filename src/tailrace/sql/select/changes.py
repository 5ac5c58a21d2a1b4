"""Change feeds: `table_changes('chat.messages' [, from_cursor [, to_cursor]])` in FROM.

It is a subquery over the change topic of the table. Each image of a row in a change event becomes a row, with the column types
of the table and with `_change_type`, `_commit_version` (the cursor) and `_commit_timestamp`, named as in Spark and Delta.
"""

from collections.abc import Collection, Mapping

from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.analysis.types import INT8, TEXT, TIMESTAMPTZ, SqlType, of_column
from tailrace.sql.duckdb.constants import duckdb_type, literal, quoted

META_COLUMNS: Mapping[str, SqlType] = {"_change_type": TEXT, "_commit_version": INT8, "_commit_timestamp": TIMESTAMPTZ}
TOPIC_COLUMNS_READ = ("offset", "cursor", "timestamp", "value")
"""The columns of the change topic that the subquery reads."""


def changes_sql(table: Table, relation: str, wanted: Collection[str], low: str | None, high: str | None) -> str:
    """Return the subquery in DuckDB's SQL, over the relation of the change topic. Only the wanted columns are extracted.

    `low` and `high` are the SQL of the cursors that limit it, both included.
    """
    columns = [_column(column) for column in table.columns if column.name in wanted]
    # Rows that snapshots have read are not changes.
    bounds = ["""json_extract_string("value", '$.op') <> 'read'"""]
    bounds += [f'"cursor" >= {low}'] if low is not None else []
    bounds += [f'"cursor" <= {high}'] if high is not None else []
    return f"""
        SELECT {"".join(f"{column}, " for column in columns)} _change_type,
            "cursor" AS _commit_version, "timestamp" AS _commit_timestamp
        FROM (
            SELECT "cursor", "timestamp", _change_type,
                json_extract("value", CASE WHEN _change_type IN ('delete', 'update_preimage')
                    THEN '$.old' ELSE '$.new' END) AS image
            FROM (
                SELECT "cursor", "timestamp", "value", unnest(
                    CASE json_extract_string("value", '$.op')
                    WHEN 'update' THEN ['update_preimage', 'update_postimage']
                    WHEN 'insert' THEN ['insert'] ELSE ['delete'] END) AS _change_type
                FROM {relation} WHERE {" AND ".join(bounds)}
            )
        )"""  # noqa: S608


def _column(column: Column) -> str:
    path = literal(f'$."{column.name}"')
    return f"{_value(column.type, path)} AS {quoted(column.name)}"


def _value(kind: ColumnType, path: str) -> str:
    text = f"json_extract_string(image, {path})"
    wanted = duckdb_type(of_column(kind))
    match kind.kind:
        case "text":
            return text
        case "bytes":
            return f"from_base64({text})"
        case "json":
            return f"CASE WHEN {text} IS NOT NULL THEN json_extract(image, {path}) END"
        case "list":
            return f"CAST({_items(kind, f'json_extract(image, {path})')} AS {wanted})"
    return f"CAST({text} AS {wanted})"


def _items(kind: ColumnType, json: str) -> str:
    """Return the SQL for a list in JSON, in which bytes are base64."""
    if kind.element is not None and kind.element.kind == "bytes":
        return f"list_transform(CAST({json} AS VARCHAR[]), lambda item: from_base64(item))"
    return json
