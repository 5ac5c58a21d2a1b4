"""Changes of a table of PostgreSQL to a topic: how many a second from a backlog, and how late at a steady rate."""

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from bench.capture.delays import PER_SECOND, Delays, measure_delays
from bench.capture.discard import discard_stream
from bench.capture.orders import LEAST_ROWS, MOST_ROWS, ROW, Orders, running_orders
from bench.capture.side import Capture, ChangeTopic, MakeCapture, Passage
from bench.figures import Bar, Figure, Samples, Section
from bench.http.rates import percentile
from bench.http.server import cpu_seconds_of
from bench.workspace import Workspace, settle_disk

_DISCARD = "discard"
_LEAST_RATIO = 2
_LEAST_OF_DISCARD = 0.5
_MOST_P99_MS = 100
_WARM_UP_ROUNDS = 2
_LEAST_A_SECOND = 2_000
"""A capture that is slower than this is not waited for."""
_START_SECONDS = 60.0


class _Streamed(NamedTuple):
    """One round of one capture."""

    passage: Passage
    began: float
    cpu_microseconds: float
    """Of all its processes, for each change."""


def run(workspace: Workspace, make_ours: MakeCapture, make_other: MakeCapture) -> Section:
    scale = workspace.scale.capture
    with ExitStack() as stack:
        orders = stack.enter_context(running_orders(workspace))
        captures = {
            "ours": stack.enter_context(make_ours(workspace, orders)),
            "other": stack.enter_context(make_other(workspace, orders)),
        }
        orders.create_slot(_DISCARD)
        for capture in captures.values():
            capture.prepare()
        workspace.say(f"{captures['ours'].name} beside {captures['other'].name}: {scale.changes:,} changes in each round")
        stream = _Stream(workspace, orders, captures)
        for _ in range(_WARM_UP_ROUNDS):
            stream.pass_through(scale.warm_up_changes // _WARM_UP_ROUNDS)
        stream.forget()
        for _ in range(scale.rounds):
            stream.pass_through(scale.changes)
        workspace.say(f"{PER_SECOND:,} changes a second, one in each transaction")
        delays: dict[str, list[Delays]] = {name: [] for name in captures}
        for turn in range(scale.delay_rounds):
            for name in _in_turn(list(captures), turn):
                delays[name].append(stream.measure_delays(captures[name]))
        names = {name: capture.name for name, capture in captures.items()}
        database = orders.name
    found = stream.found

    def rates(name: str) -> Samples:
        return Samples(tuple(each.passage.per_second for each in found[name]))

    def since_start(name: str) -> Samples:
        return Samples(tuple(each.passage.per_second_since(each.began) for each in found[name]))

    def late(name: str, share: float) -> Samples:
        return Samples(tuple(percentile(each.seconds, share) for each in delays[name]))

    def beside(what: str, unit: str, ours: Samples, other: Samples, bar: Bar | None = None) -> Figure:
        return Figure(name=what, ours=ours, unit=unit, peer=names["other"], peers=other, bar=bar)

    at = f"at {PER_SECOND:,} changes/s"
    return Section(
        title="PostgreSQL as a source: changes to a topic",
        text=f"{scale.changes:,} changes of a table, {ROW}, inserts and updates in transactions of {LEAST_ROWS} to {MOST_ROWS}"
        f" rows, are committed to {database} while nobody reads. Then each side in turn streams the same changes from a slot of"
        " its own (`pgoutput`) to a topic. The rate is that from the begin of the stream to the last event that can be read"
        " there. psycopg2 receives the same stream and discards it. Afterwards each topic has every change once and in order."
        " Tailrace captures exactly once, by `tailrace capture`, and syncs what it acknowledges to PostgreSQL; Debezium runs in"
        " Kafka Connect, standalone, delivers at least once, and writes to a Kafka that syncs when it decides. At a steady rate"
        " rows are inserted one by one; the delay is that from the return of COMMIT to the event at a Kafka client that waits"
        " for it.",
        figures=[
            beside("changes to a topic", "changes/s", rates("ours"), rates("other"), Bar("at least", _LEAST_RATIO)),
            Figure(
                name="the same",
                ours=rates("ours"),
                unit="changes/s",
                peer="a loop of psycopg2 that discards the stream",
                peers=Samples(tuple(stream.discarded)),
                bar=Bar("at least", _LEAST_OF_DISCARD),
            ),
            beside("the same, with the start of streaming", "changes/s", since_start("ours"), since_start("other")),
            beside(f"delay {at}, p50", "ms", late("ours", 0.5), late("other", 0.5)),
            Figure(name=f"delay {at}, p99", ours=late("ours", 0.99), unit="ms", bar=Bar("at most", _MOST_P99_MS)),
            beside(f"delay {at}, p99", "ms", late("ours", 0.99), late("other", 0.99)),
        ],
        remarks=[
            *(f"CPU for a change, {names[name]}: {_median_cpu(found[name]):.1f} µs." for name in names),
            *(
                f"Reached at {names[name]}: {min(each.rate for each in delays[name]):,.0f} of {PER_SECOND:,} changes/s."
                for name in names
            ),
            *captures["other"].remarks,
        ],
    )


class _Stream:
    """Writes changes and lets each side stream them in turn."""

    def __init__(self, workspace: Workspace, orders: Orders, captures: Mapping[str, Capture]) -> None:
        self._workspace = workspace
        self._orders = orders
        self._captures = captures
        self._next_change = 0
        self._turn = 0
        self.found: dict[str, list[_Streamed]] = {}
        self.discarded: list[float] = []
        """Changes a second."""
        self.forget()

    def forget(self) -> None:
        self.found = {name: [] for name in self._captures}
        self.discarded = []

    def pass_through(self, count: int) -> None:
        first, self._next_change = self._next_change, self._next_change + count
        end = self._orders.write_changes(first, count)
        settle_disk()
        for name in _in_turn([*self._captures, _DISCARD], self._turn):
            if name == _DISCARD:
                self.discarded.append(count / discard_stream(self._orders, _DISCARD, end).seconds)
            else:
                self.found[name].append(_streamed(self._orders, self._captures[name], first, count))
                self._workspace.say(f"{self._captures[name].name}: {self.found[name][-1].passage.per_second:,.0f} changes/s")
        self._turn += 1

    def measure_delays(self, capture: Capture) -> Delays:
        """Measure one capture while the others are stopped. These get the changes too, when they are started again."""
        with closing(ChangeTopic(capture, capture.topic)) as topic:
            capture.start()
            # What others were measured with waits in its slot.
            topic.await_events(0, self._next_change, _START_SECONDS + self._next_change / _LEAST_A_SECOND)
            first = self._next_change
            delays = measure_delays(self._workspace, self._orders, capture, first)
            self._next_change = delays.next_change
            topic.check_changes_in_any_order(first, self._next_change - first)
        capture.stop()
        return delays


def _streamed(orders: Orders, capture: Capture, first: int, count: int) -> _Streamed:
    """Let a capture stream changes that wait, and check them."""
    with closing(ChangeTopic(capture, capture.topic)) as topic:
        before = _cpu_seconds(capture)
        began = time.perf_counter()
        capture.start()
        # From here on: what is read ahead of the first event counts.
        streaming_at = orders.await_streaming(_START_SECONDS)
        passage = topic.await_events(first, count, _START_SECONDS + count / _LEAST_A_SECOND)._replace(none_at=streaming_at)
        after = _cpu_seconds(capture)
        capture.stop()
        topic.check_changes(first, count)
    # A process that was started since has used all of its time for this.
    used = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    return _Streamed(passage, began, used / count * 1e6)


def _cpu_seconds(capture: Capture) -> dict[int, float]:
    return {pid: cpu_seconds_of(pid) for pid in capture.pids.values()}


def _median_cpu(found: Sequence[_Streamed]) -> float:
    return statistics.median(each.cpu_microseconds for each in found)


def _in_turn(names: list[str], turn: int) -> list[str]:
    first = turn % len(names)
    return names[first:] + names[:first]
