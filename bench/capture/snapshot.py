"""The rows that a table of PostgreSQL has already: how fast they come to a topic, beside Debezium and beside COPY."""

import statistics
import time
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path

from bench.capture.orders import ROW, Orders, running_orders
from bench.capture.side import Capture, ChangeTopic, MakeCapture
from bench.figures import Bar, Figure, Section, Side, alternate
from bench.workspace import Workspace, settle_disk

_LEAST_RATIO = 2
_LEAST_OF_COPY = 0.25
_START_SECONDS = 60.0
_LEAST_A_SECOND = 2_000
_COPIES = 3
"""One takes a second or two, so the median of some is taken."""


def run(workspace: Workspace, make_ours: MakeCapture, make_other: MakeCapture) -> Section:
    scale = workspace.scale.capture
    rows = scale.snapshot_rows
    with ExitStack() as stack:
        orders = stack.enter_context(running_orders(workspace))
        workspace.say(f"a table of {rows:,} rows")
        orders.insert_at_once(0, rows)
        orders.connection.execute("VACUUM ANALYZE orders")
        ours = stack.enter_context(make_ours(workspace, orders))
        other = stack.enter_context(make_other(workspace, orders))
        file = stack.enter_context(workspace.folder()) / "copied"
        file.parent.chmod(0o777)  # PostgreSQL may run as another user
        workspace.say(f"snapshots: {ours.name} beside {other.name}")
        sides: dict[str, Side] = {
            "ours": _Snapshots(ours, rows).take,
            "other": _Snapshots(other, rows).take,
            "copy": partial(_copy, orders, file, rows),
        }
        found = alternate(sides, rows, scale.rounds)
        database = orders.name
    return Section(
        title="PostgreSQL as a source: snapshot",
        text=f"A table of {rows:,} rows, {ROW}, in {database} is captured from nothing: its rows come to a new topic, where"
        " afterwards each is once. The time is that from the request for the capture to the last event that can be read in the"
        " topic. Both show rows as they come. COPY is"
        f" `COPY orders TO` a file of the database server, the median of {_COPIES} times.",
        figures=[
            Figure(
                name="rows of a snapshot",
                ours=found["ours"],
                unit="rows/s",
                peer=other.name,
                peers=found["other"],
                bar=Bar("at least", _LEAST_RATIO),
            ),
            Figure(
                name="the same",
                ours=found["ours"],
                unit="rows/s",
                peer="`COPY ... TO` a file",
                peers=found["copy"],
                bar=Bar("at least", _LEAST_OF_COPY),
            ),
        ],
        remarks=list(other.remarks),
    )


class _Snapshots:
    """Takes one snapshot after the other with one capture."""

    def __init__(self, capture: Capture, rows: int) -> None:
        self._capture = capture
        self._rows = rows
        self._numbers = count()

    def take(self, _: int) -> float:
        """Return rows a second, always of the whole table."""
        settle_disk()
        number = next(self._numbers)
        began = time.perf_counter()
        with closing(ChangeTopic(self._capture, self._capture.begin_snapshot(number))) as topic:
            passage = topic.await_events(0, self._rows, _START_SECONDS + self._rows / _LEAST_A_SECOND)
            topic.check_changes_in_any_order(0, self._rows)
        self._capture.end_snapshot(number)
        return passage.per_second_since(began)


def _copy(orders: Orders, file: Path, table_rows: int, _: int) -> float:
    seconds = []
    for _ in range(_COPIES):
        began = time.perf_counter()
        orders.copy_to(file)
        seconds.append(time.perf_counter() - began)
    return table_rows / statistics.median(seconds)
