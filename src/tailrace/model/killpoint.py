"""Named points at which a test can kill the process.

`TAILRACE_KILLPOINT=name:3` ends the process at once, without any clean-up, when it passes `name` for the third time. If it is
not set, as usual, a kill point is an empty call. The tuples list all names, so that tests can visit every one: `KILLPOINTS`
those of the log, `COMPACTION_KILLPOINTS` of compactions, `TABLE_KILLPOINTS` of tables, `CHECKPOINT_KILLPOINTS` and
`REBUILD_KILLPOINTS` of checkpoints of their rows and of rebuilding their file, `FILL_KILLPOINTS` of CREATE TABLE AS,
`ROUTER_KILLPOINTS` of the router, `LARGE_WRITE_KILLPOINTS` of writes that span frames, and `PAYLOAD_KILLPOINTS` of payloads.
"""

import os
from collections.abc import Callable

KILLPOINTS = (
    "write.before",
    "write.half",
    "write.after",
    "sync.before",
    "sync.after",
    "apply.before",
    "apply.after",
    "answer.before",
    "answer.after",
    "roll.before",
    "roll.after",
    "checkpoint.before",
    "checkpoint.written",
    "checkpoint.after",
    "clean.before",
    "clean.written",
    "clean.switched",
    "clean.after",
    "mark.before",
    "mark.written",
    "mark.after",
)

COMPACTION_KILLPOINTS = (
    "compact.noted",
    "compact.removed",
    "compact.counted",
)
"""The steps of a compaction, besides those of the cleaner: keys noted, segments rewritten and told of the new count of bytes,
batches counted again."""

TABLE_KILLPOINTS = (
    "change.made",
    "change.logged",
    "change.applied",
)
"""The steps of a write to a table: executed, in the log, in the table and not answered."""

CHECKPOINT_KILLPOINTS = (
    "rows.read",
    "rows.between",
    "rows.done",
)
"""The steps of a checkpoint of a table: rows read and not in the log, some of them in the log, all of them in the log."""

REBUILD_KILLPOINTS = (
    "rebuild.half",
    "rebuild.made",
    "rebuild.decided",
    "rebuild.cleared",
    "rebuild.done",
)
"""The steps of rebuilding the file of the tables: some rows in the new file, all of them, the new file recorded as the valid
one, the log of the old file deleted, the new file in its place."""

FILL_KILLPOINTS = (
    "fill.created",
    "fill.between",
    "fill.filled",
    "fill.revealed",
)
"""The steps of CREATE TABLE AS: the table created and hidden, between two parts of its rows, all rows there, visible and not
answered."""

ROUTER_KILLPOINTS = (
    "route.before",
    "route.staged",
    "route.published",
)
"""The steps of a batch: begun, staged and not published, published and not yet known to Spark."""

LARGE_WRITE_KILLPOINTS = (
    "large.kept",
    "large.decided",
    "large.between",
    "large.done",
)
"""The steps of a write that spans frames: its stages durable, the decision durable, between two frames, all frames in the log
and not answered."""

PAYLOAD_KILLPOINTS = (
    "payload.half",
    "payload.written",
    "payload.kept",
    "payload.forgotten",
    "payload.removed",
)
"""The steps of a payload: half written, renamed and not durable, durable and not yet referred to; later no longer referred to
and not deleted, and deleted."""

EXIT_CODE = 137


def _armed(setting: str) -> Callable[[str], None]:
    target, _, count = setting.partition(":")
    known = (
        *KILLPOINTS,
        *COMPACTION_KILLPOINTS,
        *TABLE_KILLPOINTS,
        *CHECKPOINT_KILLPOINTS,
        *REBUILD_KILLPOINTS,
        *FILL_KILLPOINTS,
        *ROUTER_KILLPOINTS,
        *LARGE_WRITE_KILLPOINTS,
        *PAYLOAD_KILLPOINTS,
    )
    if target not in known:
        raise ValueError(f"TAILRACE_KILLPOINT is {target!r}; it must be one of {', '.join(known)}")
    left = int(count or 1)

    def armed(name: str) -> None:
        nonlocal left
        if name == target:
            left -= 1
            if left <= 0:
                os._exit(EXIT_CODE)

    return armed


def _unarmed(name: str) -> None:
    pass


_setting = os.environ.get("TAILRACE_KILLPOINT")
killpoint: Callable[[str], None] = _armed(_setting) if _setting else _unarmed


def is_armed(name: str) -> bool:
    return _setting is not None and _setting.partition(":")[0] == name
