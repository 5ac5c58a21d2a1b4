"""What a route with a snapshot gets: the events of its table that are for it, and the rows that follow from them."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.model.record import Record
from tailrace.model.route import Route
from tailrace.sql.tables.jobs import SnapshotJob
from tailrace.sql.tables.tables import Tables


async def take_turns_by_hand(tables: Tables) -> None:
    """From now on snapshots move only by `turn`."""
    await tables._snapshots.close()


async def turn(tables: Tables, broker: Broker) -> None:
    """One chunk of each snapshot that runs."""
    for snapshot in [each for of_table in broker.snapshots.running.values() for each in of_table]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tables._writer.queue.put(SnapshotJob(snapshot.route, str(broker.changes.next_transaction()), done))
        await done


def events_for(route: Route, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The events that reach a route on all operations, as the pipeline's plan has it."""
    found = []
    for record in records:
        headers = dict(record.headers)
        only, skipped = headers.get("only_route"), (headers.get("skip_routes") or b"").decode()
        is_for_it = only is None or int(only) == route.id
        is_in_force = route.since < record.cursor and (route.until is None or record.cursor < route.until)
        if is_in_force and is_for_it and f",{route.id}," not in skipped:
            found.append(json.loads(record.value or b""))
    return found


def rows_told(events: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows by their keys. Each event must follow from those before it: no change of an unknown row, no row twice."""
    rows: dict[str, dict[str, Any]] = {}
    reads = Counter(json.dumps(event["key"]) for event in events if event["op"] == "read")
    assert all(times == 1 for times in reads.values()), reads
    for event in events:
        key = json.dumps(event["key"])
        assert rows.get(key) == event["old"], f"{event} does not follow from {rows.get(key)}"
        if event["new"] is None:
            del rows[key]
        else:
            rows[key] = event["new"]
    return rows
