"""Keeps snapshots going: as long as routes have rows to be told, the writer gets a turn for each of them, chunk by chunk.

A turn waits in the writer's queue like any client's write, and the next one is asked for when it is done. So clients wait for
one chunk at most, and a snapshot for the clients that came before it. A turn that fails is tried again after a pause.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from tailrace.broker.tables.change_log import ChangeLog
from tailrace.model.route import RouteSnapshot
from tailrace.sql.tables.jobs import Job, SnapshotJob

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 10.0


class SnapshotTurns:
    def __init__(self, changes: ChangeLog, submit: Callable[[Job], None]) -> None:
        self._changes = changes
        self._submit = submit
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def start(self) -> None:
        """Go on with those that an earlier run of the server has left."""
        self._begun.set()
        self._task = asyncio.create_task(self._run(), name="tailrace-snapshots")

    def begun(self) -> None:
        """There is a new one."""
        self._begun.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await self._begun.wait()
            self._begun.clear()
            while running := [snapshot for of_table in self._changes.snapshots.running.values() for snapshot in of_table]:
                for snapshot in running:
                    await self._turn(snapshot)

    async def _turn(self, snapshot: RouteSnapshot) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._submit(SnapshotJob(snapshot.route, str(self._changes.next_transaction()), done))
            await done
        except Exception as error:  # noqa: BLE001  the top of a worker task; the next turn may well succeed
            _log.warning("the snapshot of route %d goes on in %g s: %s", snapshot.route, self._pause, error)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        else:
            self._pause = _FIRST_PAUSE_SECONDS
