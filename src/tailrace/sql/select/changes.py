"""Change feeds: `table_changes('chat.messages' [, from_cursor [, to_cursor]])` in FROM.

It is a subquery over the change topic of the table. Each image of a row in a change event becomes a row, with the column types
of the table and with `_change_type`, `_commit_version` (the cursor) and `_commit_timestamp`, named as in Spark and Delta. The
columns are those that the table has now: what an event of an older version has under another name or type is shown as they
are now, and a column that its version lacks is null. TRUNCATE is one row with nothing but nulls in the columns of the table.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tailrace.model.table import ColumnType, Table
from tailrace.sql.analysis.types import INT8, INTERVAL, TEXT, TIMESTAMPTZ, SqlType, of_column
from tailrace.sql.duckdb.constants import cast_text, duckdb_type, literal, quoted
from tailrace.sql.tables.schema_versions import changes_since

META_COLUMNS: Mapping[str, SqlType] = {"_change_type": TEXT, "_commit_version": INT8, "_commit_timestamp": TIMESTAMPTZ}
TOPIC_COLUMNS_READ = ("offset", "cursor", "timestamp", "value")
"""The columns of the change topic that the subquery reads."""


def changes_sql(table: Table, relation: str, wanted: Collection[str], low: str | None, high: str | None) -> str:
    """Return the subquery in DuckDB's SQL, over the relation of the change topic. Only the wanted columns are extracted.

    `low` and `high` are the SQL of the cursors that limit it, both included.
    """
    lives = _lives(table)
    columns = [
        f"{_over_versions(lives[at])} AS {quoted(column.name)}"
        for at, column in enumerate(table.columns)
        if column.name in wanted
    ]
    # Rows that snapshots have read are not changes.
    bounds = ["""json_extract_string("value", '$.op') <> 'read'"""]
    bounds += [f'"cursor" >= {low}'] if low is not None else []
    bounds += [f'"cursor" <= {high}'] if high is not None else []
    return f"""
        SELECT {"".join(f"{column}, " for column in columns)} _change_type,
            "cursor" AS _commit_version, "timestamp" AS _commit_timestamp
        FROM (
            SELECT "cursor", "timestamp", _change_type,
                coalesce(CAST(json_extract_string("value", '$.schema_version') AS INTEGER), 1) AS _schema_version,
                json_extract("value", CASE WHEN _change_type IN ('delete', 'update_preimage')
                    THEN '$.old' ELSE '$.new' END) AS image
            FROM (
                SELECT "cursor", "timestamp", "value", unnest(
                    CASE json_extract_string("value", '$.op')
                    WHEN 'update' THEN ['update_preimage', 'update_postimage']
                    WHEN 'insert' THEN ['insert'] WHEN 'truncate' THEN ['truncate'] ELSE ['delete'] END) AS _change_type
                FROM {relation} WHERE {" AND ".join(bounds)}
            )
        )"""  # noqa: S608


class _Period(NamedTuple):
    """From which version on a column had a name and a type."""

    version: int
    name: str
    types: tuple[ColumnType, ...]
    """Its type, and all that it had later, in order."""


def _lives(table: Table) -> list[list[_Period]]:
    """Return for each column of the table the periods of its life, from the newest to the oldest."""
    lives = [[_Period(table.schema_version, column.name, (column.type,))] for column in table.columns]
    places = list(range(len(lives)))
    """For each column of the version that the loop has come to: which column it is now, or -1 if it was dropped since."""
    changes = changes_since(table, 1)
    columns = table.columns
    for version in range(table.schema_version - 1, 0, -1):
        for _ in table.history[version - 1]:
            shaped = changes.pop()
            change, columns = shaped.change, shaped.before.columns
            if change.kind == "add":
                now = places.pop(change.place)
                if now >= 0:
                    lives[now][-1] = lives[now][-1]._replace(version=version + 1)
            elif change.kind == "drop":
                places.insert(change.place, -1)
        for place, column in enumerate(columns):
            now = places[place]
            if now < 0:
                continue
            newest = lives[now][-1]
            types = newest.types if column.type == newest.types[0] else (column.type, *newest.types)
            if (column.name, types) == (newest.name, newest.types):
                lives[now][-1] = newest._replace(version=version)
            else:
                lives[now].append(_Period(version, column.name, types))
    return lives


def _over_versions(periods: Collection[_Period]) -> str:
    """Return the SQL of a column over the versions of the events."""
    branches = [(period.version, _through(period)) for period in periods]
    if len(branches) == 1 and branches[0][0] == 1:
        return branches[0][1]
    cases = " ".join(f"WHEN _schema_version >= {version} THEN {value}" for version, value in branches)
    return f"CASE {cases} END"


def _through(period: _Period) -> str:
    """Return the SQL of a value that goes through all types that its column had."""
    first, *later = period.types
    value = _value(first, literal(f'$."{period.name}"'))
    for kind in later:
        value = cast_text(value, of_column(first), of_column(kind))
        first = kind
    return value


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
        case "interval":
            return cast_text(text, TEXT, INTERVAL)
    return f"CAST({text} AS {wanted})"


def _items(kind: ColumnType, json: str) -> str:
    """Return the SQL for a list in JSON, in which bytes are base64 and intervals texts."""
    if kind.element is not None and kind.element.kind == "interval":
        return f"list_transform(CAST({json} AS VARCHAR[]), lambda item: {cast_text('item', TEXT, INTERVAL)})"
    if kind.element is not None and kind.element.kind == "bytes":
        return f"list_transform(CAST({json} AS VARCHAR[]), lambda item: from_base64(item))"
    return json
