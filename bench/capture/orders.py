"""The captured table, and changes of it that are numbered, so that every one can be found in a topic once and in order."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.postgres import connect, release_of, running_postgres
from bench.peers.servers import PeerFailure
from bench.workspace import Workspace
from tailrace.model.address import Address

PUBLICATION = "bench"
ROW = "a row of 8 columns and about 150 B"
LEAST_ROWS, MOST_ROWS = 10, 100
"""Of a transaction of the stream; the numbers between are used in turn, so 55 on average."""

_FREE_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_SETTINGS: Mapping[str, str | int] = {
    "wal_level": "logical",
    "max_wal_senders": 10,
    "max_replication_slots": 10,
    # No checkpoint in the middle of a measurement if it can be avoided.
    "max_wal_size": "8GB",
}
_CREATE = """
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, change BIGINT NOT NULL, customer BIGINT NOT NULL, status TEXT NOT NULL,
    amount NUMERIC(12, 2) NOT NULL, quantity INTEGER NOT NULL, note TEXT NOT NULL, changed TIMESTAMPTZ NOT NULL
)
"""
_COLUMNS = "n % 10007, 'created', (n % 100000) / 100.0, (n % 9)::int, rpad('order ' || n, 80, '.'), now()"
_WRITE = f"""
CREATE PROCEDURE write_changes(first BIGINT, count BIGINT) LANGUAGE plpgsql AS $$
DECLARE
    number BIGINT := first;
    finish BIGINT := first + count;
    turn BIGINT := 0;
    size BIGINT;
    inserted BIGINT;
    before BIGINT := 0;
    begins BIGINT := (SELECT coalesce(max(id) + 1, 0) FROM orders);
BEGIN
    WHILE number < finish LOOP
        size := least({LEAST_ROWS} + turn * 37 % {MOST_ROWS - LEAST_ROWS + 1}, finish - number);
        -- The rest of a transaction updates rows that the one before has inserted.
        inserted := size - least(before, size * 2 / 5);
        INSERT INTO orders SELECT begins + n, number + n, {_COLUMNS} FROM generate_series(0, inserted - 1) n ORDER BY n;
        UPDATE orders SET change = number + inserted + id - (begins - before), status = 'paid', changed = now()
            WHERE id >= begins - before AND id < begins - before + size - inserted;
        number := number + size;
        begins := begins + inserted;
        before := inserted;
        turn := turn + 1;
        COMMIT;
    END LOOP;
END $$
"""
_LOAD_SETTINGS = (
    "SET synchronous_commit = off",
    # Rows are updated in the order of their keys.
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
)


class Orders(NamedTuple):
    """A running PostgreSQL with the table."""

    address: Address
    connection: Any

    @property
    def name(self) -> str:
        return f"PostgreSQL {release_of(self.connection)}"

    def write_changes(self, first: int, count: int) -> int:
        """Write so many changes, numbered from `first`, in short transactions, and a message behind them; return its LSN."""
        with connect(self.address) as connection:
            for setting in _LOAD_SETTINGS:
                connection.execute(setting)
            connection.execute(f"CALL write_changes({first}, {count})")
        return self._mark_end()

    def insert_at_once(self, first: int, count: int) -> int:
        """Insert so many rows in one transaction, whose changes and ids are numbered from `first`, and a message as above."""
        numbers = f"generate_series({first}::bigint, {first + count - 1}::bigint) n"
        self.connection.execute(f"INSERT INTO orders SELECT n, n, {_COLUMNS} FROM {numbers} ORDER BY n")
        return self._mark_end()

    def create_slot(self, slot: str) -> None:
        """Create a slot that holds the stream from now on."""
        self.connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])

    def advance_slot(self, slot: str, end: int) -> None:
        """Confirm everything up to an LSN, once nobody reads the slot."""
        self.await_free(slot)
        self.connection.execute("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s::numeric)", [slot, end])

    def await_free(self, slot: str) -> None:
        """Wait until PostgreSQL has noticed that whoever read the slot is gone."""
        deadline = time.monotonic() + _FREE_SECONDS
        active = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active"
        while found := self.connection.execute(active, [slot]).fetchall():
            if time.monotonic() > deadline:
                raise PeerFailure(f"the slot {slot} was still read by process {found[0][0]} after {_FREE_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def await_streaming(self, within_seconds: float) -> float:
        """Wait until somebody reads a slot, and return when that was."""
        deadline = time.monotonic() + within_seconds
        while not self.connection.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchall():
            if time.monotonic() > deadline:
                raise PeerFailure(f"nobody read a slot within {within_seconds:.0f} s")
            time.sleep(_LOOK_SECONDS)
        return time.perf_counter()

    def drop_slot(self, slot: str) -> None:
        self.await_free(slot)
        self.connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])

    def copy_to(self, file: Path) -> None:
        """Let the server copy the table to a file of its own."""
        self.connection.execute(f"COPY orders TO '{file}'")

    def _mark_end(self) -> int:
        """Write a message to the log, whose commit syncs everything before it, and return the LSN at or behind which it is."""
        ((lsn,),) = self.connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
        self.connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'end')")
        return int(lsn)


@contextmanager
def running_orders(workspace: Workspace) -> Iterator[Orders]:
    """Run PostgreSQL on a folder of its own, with the table, empty, and a publication of it."""
    with (
        workspace.folder() as folder,
        running_postgres(folder, _SETTINGS) as address,
        connect(address) as connection,
    ):
        for statement in (_CREATE, _WRITE, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE orders"):
            connection.execute(statement)
        yield Orders(address, connection)
