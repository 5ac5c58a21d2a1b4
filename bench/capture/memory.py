"""Memory while a transaction of very many rows is captured, beside one of a tenth."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import psutil

from bench.capture.orders import ROW, running_orders
from bench.capture.side import Capture, ChangeTopic, MakeCapture
from bench.figures import Bar, Figure, Samples, Section
from bench.workspace import Workspace

_SHARE = 10
_MOST_GROWTH = 1.25
_LOOK_SECONDS = 0.2
_START_SECONDS = 120.0
_LEAST_A_SECOND = 2_000

Peaks = dict[str, float]
"""The highest memory of each process, in MB."""


def run(workspace: Workspace, make: MakeCapture) -> Section:
    rows = workspace.scale.capture.transaction_rows
    first = 0
    found: list[Peaks] = []
    with ExitStack() as stack:
        orders = stack.enter_context(running_orders(workspace))
        capture = stack.enter_context(make(workspace, orders))
        capture.prepare()
        capture.start()
        topic = stack.enter_context(closing(ChangeTopic(capture, capture.topic)))
        for count in (rows // _SHARE, rows):
            workspace.say(f"a transaction of {count:,} rows")
            with _watching(capture) as peaks:
                orders.insert_at_once(first, count)
                topic.await_events(first, count, _START_SECONDS + count / _LEAST_A_SECOND)
            topic.check_changes(first, count)
            first += count
            found.append(peaks)
        capture.stop()
        database = orders.name
    part, whole = found
    return Section(
        title="PostgreSQL as a source: memory for a large transaction",
        text=f"The most memory (RSS) of the server and of the process that captures while one transaction of {rows // _SHARE:,}"
        f" rows and then one of {rows:,}, {ROW}, is committed to {database} and comes to the topic. Looked at every"
        f" {_LOOK_SECONDS} s. Afterwards each row is in the topic once and in order.",
        figures=[
            Figure(
                name=f"{name}, a transaction of {rows:,} rows",
                ours=Samples((whole[name],)),
                unit="MB",
                peer=f"one of {rows // _SHARE:,} rows",
                peers=Samples((part[name],)),
                bar=Bar("at most", _MOST_GROWTH),
            )
            for name in whole
        ],
    )


@contextmanager
def _watching(capture: Capture) -> Iterator[Peaks]:
    """Note the peaks of all processes until the end of the block."""
    peaks: Peaks = {}
    ended = threading.Event()

    def look() -> None:
        while True:
            for name, pid in capture.pids.items():
                peaks[name] = max(peaks.get(name, 0.0), _megabytes(pid))
            if ended.wait(_LOOK_SECONDS):
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _megabytes(pid: int) -> float:
    """Return the memory of a process and of those that it started."""
    total = 0.0
    process = psutil.Process(pid)
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return total
