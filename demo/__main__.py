"""Routes the changes of a table to two topics, kills the server in between, and checks that every change arrived once."""

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo.chat import SET_UP, AckedRows, Writer
from demo.server import WAIT_SECONDS, DemoApi, HttpGroup, PipelineProcess, read_by_kafka, routing_delays, wait_until
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.session import check_spark
from tests.support.server import ServerProcess

NEW_MESSAGES, CHANGED_KEYS = "app.new_messages", "app.changed_keys"
STATEMENTS = 150
DELAY_INSERT = "INSERT INTO chat.messages VALUES (?, 42, true, 'demo', 'how long does it take')"
DELAY_IDS = range(10**9, 10**9 + 20)


def main() -> int:
    console = Console(highlight=False, soft_wrap=True)
    try:
        check_spark()
    except PipelineError as error:
        console.print(f"[red]{error}[/]")
        return 1
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
    log = folder / "pipeline.log"
    with ServerProcess(folder / "data") as server, PipelineProcess(server.url, log) as pipeline:
        kept = _tell(console, server, pipeline)
    console.print(f"   Where to look: {log}; docs/guarantees.md says what is promised, and which test shows it")
    console.print(f"   The folder stays: .venv/bin/tailrace dump {folder / 'data'} --records")
    console.print(f"   Took {time.monotonic() - began:.0f} s.")
    return 0 if kept else 1


def _tell(console: Console, server: ServerProcess, pipeline: PipelineProcess) -> bool:
    console.print("[bold]1. A server on a new folder, and a pipeline on Spark beside it[/]")
    console.print(f"   {server.ready_line.strip()}")
    # The same addresses after the kill, so that everything that waits finds the server again.
    server.flags += ("--http", server.url.removeprefix("http://"), "--kafka", server.kafka)
    api, writer, acked = DemoApi(server.url), Writer(seed=7), AckedRows()

    console.print("\n[bold]2. A table, two topics and two routes, in SQL[/]")
    console.print("   " + SET_UP.strip().replace("\n", "\n   "), style="cyan")
    api.sql(SET_UP)

    console.print("\n[bold]3. Rows are inserted, updated and deleted; the pipeline routes the changes[/]")
    writer.write(api, acked, STATEMENTS)
    console.print(f"   {_said(acked)}")
    console.print("   Waiting for the first of them; Spark takes some seconds to start.", style="dim")
    group = HttpGroup(CHANGED_KEYS, "demo")
    if not wait_until(lambda: group.read_up(api, 500) > 0, pipeline):
        console.print(f"[red]   Nothing was routed in {WAIT_SECONDS:g} s; the log of the pipeline says how far it has come.[/]")
        return False
    console.print(f"   A consumer group over HTTP has read {group.read.total():,} of {CHANGED_KEYS} and acknowledged them.")

    console.print(f"\n[bold]4. SIGKILL to the server, process {server.pid}, in the middle of writing[/]")
    _write_and_kill(server, api, writer, acked)
    began = time.monotonic()
    server.start()
    console.print(f"   Started again, from start to ready {time.monotonic() - began:.2f} s: {server.ready_line.strip()}")
    _settle_the_unanswered(api, acked)
    writer.write(api, acked, STATEMENTS)
    console.print(f"   {_said(acked)}")

    console.print("\n[bold]5. The pipeline catches up, and everything is read back[/]")
    total = acked.changes.total()
    wait_until(lambda: api.sql(f"SELECT count(*) FROM {CHANGED_KEYS}") == [[total]], pipeline)  # noqa: S608
    group.read_up(api, total + 1)
    routed = read_by_kafka(server.kafka, NEW_MESSAGES, 4)
    ((changes,),) = api.sql("SELECT count(*) FROM _changes.chat.messages")
    ((rows,),) = api.sql("SELECT count(*) FROM chat.messages")
    ((selected,),) = api.sql(f"SELECT count(*) FROM {NEW_MESSAGES}")  # noqa: S608
    lines = [
        ("rows changed: acknowledged, and in the log", total, changes),
        ("rows in the table: inserted less deleted, and SELECT", acked.changes["insert"] - acked.changes["delete"], rows),
        (f"visible inserts in channel 42, and {NEW_MESSAGES} by a Kafka client", acked.visible_in_42, routed.total()),
        (f"the same by SELECT from {NEW_MESSAGES}", acked.visible_in_42, selected),
        (f"all changes, and {CHANGED_KEYS} by the group over HTTP", total, group.read.total()),
        ("messages that came twice", 0, _twice(routed) + _twice(group.read)),
    ]
    console.print(_table(lines))
    console.print(f"   The group went on at offsets {', '.join(map(str, group.resumed_at))} after what it had acknowledged.")

    console.print("\n[bold]6. How long a change takes, from its acknowledgement to a Kafka client at the routed topic[/]")
    delays = sorted(routing_delays(api, server.kafka, CHANGED_KEYS, DELAY_INSERT, DELAY_IDS))
    console.print(
        f"   {len(delays)} single INSERTs: half within {delays[len(delays) // 2] * 1000:.0f} ms, the slowest"
        f" {delays[-1] * 1000:.0f} ms, in micro-batches. docs/reference/pipeline.md says how to get milliseconds (real time)."
    )
    stopped = pipeline.stop() == 0
    kept = stopped and server.terminate() == 0 and all(went_in == came_out for _, went_in, came_out in lines)
    console.print("\n[bold green]Every change reached its topics once.[/]" if kept else "\n[bold red]A promise was broken.[/]")
    return kept


def _write_and_kill(server: ServerProcess, api: DemoApi, writer: Writer, acked: AckedRows) -> None:
    killer = threading.Timer(0.3, server.kill)
    killer.start()
    writer.write(api, acked, 100_000)
    killer.join()


def _settle_the_unanswered(api: DemoApi, acked: AckedRows) -> None:
    """Find out from the log whether the last statement before the kill took effect. It did completely or not at all."""
    step = acked.unanswered
    if step is None:
        return
    ((changes,),) = api.sql("SELECT count(*) FROM _changes.chat.messages")
    if changes == acked.changes.total() + step.changes.total():
        acked.add(step)
    acked.unanswered = None


def _said(acked: AckedRows) -> str:
    counts = ", ".join(f"{count:,} {op}s" for op, count in sorted(acked.changes.items()))
    return f"Acknowledged so far, each after its sync: {counts}."


def _twice(read: Counter[str]) -> int:
    return sum(count - 1 for count in read.values())


def _table(lines: list[tuple[str, int, int]]) -> Table:
    table = Table("what", "in", "out")
    for what, went_in, came_out in lines:
        colour = "green" if went_in == came_out else "red"
        table.add_row(what, f"{went_in:,}", f"[{colour}]{came_out:,}")
    return table


if __name__ == "__main__":
    sys.exit(main())
