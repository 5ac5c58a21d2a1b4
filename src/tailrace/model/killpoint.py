"""Named places where a test can kill the process.

`TAILRACE_KILLPOINT=name:3` ends the process at once, without any clean-up, when it passes `name` for the third time.
Unset, which is the rule, a kill point is an empty call. `KILLPOINTS` lists every name of the log, `TABLE_KILLPOINTS` those of
tables, `CHECKPOINT_KILLPOINTS` and `REBUILD_KILLPOINTS` those of their rows' checkpoints and of making their file again,
`ROUTER_KILLPOINTS` those of the router, `LARGE_WRITE_KILLPOINTS` those of writes that span frames and `PAYLOAD_KILLPOINTS`
those of payloads, so that a test can visit them all.
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

TABLE_KILLPOINTS = (
    "change.made",
    "change.logged",
    "change.applied",
)
"""The steps of a write to a table: run, in the log, in the table and not answered."""

CHECKPOINT_KILLPOINTS = (
    "rows.read",
    "rows.between",
    "rows.done",
)
"""The steps of a checkpoint of a table: rows read and not in the log, some of them in the log, all of them."""

REBUILD_KILLPOINTS = (
    "rebuild.half",
    "rebuild.made",
    "rebuild.decided",
    "rebuild.cleared",
    "rebuild.done",
)
"""The steps of making the file of the tables again: some rows in the new file, all of them, the new file named as the one that
counts, the log of the old one gone, the new one in its place."""

ROUTER_KILLPOINTS = (
    "route.before",
    "route.staged",
    "route.published",
)
"""The steps of a batch: begun, staged and not published, published and unknown to Spark."""

LARGE_WRITE_KILLPOINTS = (
    "large.kept",
    "large.decided",
    "large.between",
    "large.done",
)
"""The steps of a write that spans frames: its stages durable, the decision durable, between two frames, all in the log and not
answered."""

PAYLOAD_KILLPOINTS = (
    "payload.half",
    "payload.written",
    "payload.kept",
    "payload.forgotten",
    "payload.removed",
)
"""The steps of a payload: half written, named and not durable, durable and not referred to; then not referred to any
more and still there, and gone."""

EXIT_CODE = 137


def _armed(setting: str) -> Callable[[str], None]:
    target, _, count = setting.partition(":")
    known = (
        *KILLPOINTS,
        *TABLE_KILLPOINTS,
        *CHECKPOINT_KILLPOINTS,
        *REBUILD_KILLPOINTS,
        *ROUTER_KILLPOINTS,
        *LARGE_WRITE_KILLPOINTS,
        *PAYLOAD_KILLPOINTS,
    )
    if target not in known:
        raise ValueError(f"TAILRACE_KILLPOINT names {target!r}, which is none of {', '.join(known)}")
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
