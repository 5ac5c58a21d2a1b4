"""Change events as rows: what the router takes from any source of changes.

    source       where the change comes from; the name of a mark
    table        the id of the table
    op           insert, update, delete, or read for a row that was there before its route
    key          the primary key, as JSON
    old_json     the row before, as JSON; null where there is none
    new_json     the row after
    position     the change's place in its source, rising
    cursor       its place in the whole log: routes are in force from a cursor on
    committed_ms when it was committed
    only_route   the one route that the change is for, or null
    skip_routes  routes that the change is not for, as `,3,7,`, or null
    mark_from    null in a change; where a step of the source begins, in the row that ends the step
    mark_to      where the step ends: everything before it has come

A source hands out its changes in order, and a row with a mark at the end of each step. Whatever was made of the changes of a
step takes effect together with its mark.
"""

import pyarrow as pa

_COLUMNS = {
    "source": ("STRING", pa.string()),
    "table": ("INT", pa.int32()),
    "op": ("STRING", pa.string()),
    "key": ("BINARY", pa.binary()),
    "old_json": ("BINARY", pa.binary()),
    "new_json": ("BINARY", pa.binary()),
    "position": ("BIGINT", pa.int64()),
    "cursor": ("BIGINT", pa.int64()),
    "committed_ms": ("BIGINT", pa.int64()),
    "only_route": ("INT", pa.int32()),
    "skip_routes": ("STRING", pa.string()),
    "mark_from": ("BIGINT", pa.int64()),
    "mark_to": ("BIGINT", pa.int64()),
}

CHANGE_SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
CHANGE_ARROW = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])


def mark_row(source: str, start: int, end: int) -> pa.RecordBatch:
    """The end of a step."""
    values = {"source": source, "mark_from": start, "mark_to": end}
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(name)], kind) for name, (_, kind) in _COLUMNS.items()], schema=CHANGE_ARROW
    )
