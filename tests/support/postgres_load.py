"""Random transactions on a PostgreSQL: all types, keys that change, savepoints, rollbacks, large ones, other columns.

Several writers share the tables, each with rows of its own, and each has a table of its own, which it alters and truncates.
Each transaction ends with a boundary (`tests/support/boundaries.py`), which says what the rows must be there. Writers go on
through faults: a transaction whose outcome is unknown has a boundary or not, like any other.
"""

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from tests.support.boundaries import BOUNDARY, create_boundaries, note_boundary
from tests.support.postgres_server import sql

KEYS = 25
LARGE_ROWS = 1200
"""Far more than PostgreSQL decodes in memory before it streams."""
BIG_TEXT = 9000
"""Enough to be stored out of line, and left out of updates that do not touch it."""

_SAMPLES: Mapping[str, Sequence[str]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "7"),
    "integer": ("2147483647", "0", "-5"),
    "bigint": ("-9223372036854775808", "9007199254740993"),
    "real": ("0.1", "1e30", "NaN", "-Infinity"),
    "double precision": ("0.1", "1.7976931348623157e308", "5e-324", "Infinity", "-0"),
    "numeric": ("1.50", "123456789012345678901234567890.000000001", "NaN", "-Infinity", "0e-20"),
    "numeric(10,2)": ("10.5", "-0.01"),
    "text": ("", 'naïve 🦜 \n\t"quoted" \\ back', "null", "x" * 300),
    "character varying(20)": ("varying", ""),
    "character(5)": ("ab", "abcde"),
    "bytea": ("\\x", "\\x00ff10", "\\x5c27"),
    "date": ("2026-01-31", "infinity", "0044-03-15 BC", "20000-01-01"),
    "time without time zone": ("13:45:00.5", "24:00:00"),
    "time with time zone": ("13:45:00+05:30",),
    "timestamp without time zone": ("2026-01-31 13:45:00.123456", "-infinity", "0044-03-15 12:00:00 BC"),
    "timestamp with time zone": ("2026-01-31 13:45:00.5+02", "infinity", "20000-01-01 00:00:00+00"),
    "interval": ("1 day 02:30:00", "-1 years 3 days -00:00:01.5", "infinity"),
    "uuid": ("f81d4fae-7dec-41d0-a765-00a0c91e6bf6",),
    "json": ('{"b": 1,  "a": [1.10, null, "x"]}', '"text"'),
    "jsonb": ('{"b": 1.10, "a": {"c": 12345678901234567890.5}}', "[]", "null", "1e400"),
    "integer[]": ("{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={5,6}"),
    "text[]": ('{"a,b","",NULL,"\\"q\\"","null"}', "{}"),
    "mood": ("sad", "happy"),
    "pair": ('(1,"a, b")', "(,)"),
    "int4range": ("[1,5)", "empty", "(,)"),
    "tstzrange": ('["2026-01-01 00:00:00+00","2026-02-01 00:00:00+00")',),
    "int4multirange": ("{[1,3),[5,8)}", "{}"),
    "inet": ("192.168.0.1/24", "::1"),
    "macaddr": ("08:00:2b:01:02:03",),
    "bit(5)": ("10101",),
    "bit varying": ("", "1011"),
    "point": ("(1.5,-2)",),
    "money": ("$1,234.50",),
    "tsvector": ("'cat':2 'fat':1",),
    "oid": ("4294967295",),
    "positive": ("5", "77"),
}
"""Types and values. Those that the tests define themselves are enum, composite and domain."""
_TYPES = tuple(_SAMPLES)
_DEFINED_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TYPE pair AS (a integer, b text)",
    "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
)
_RETYPED = {"smallint": "integer", "integer": "bigint", "character varying(20)": "text", "date": "timestamp without time zone"}

_ALL_COLUMNS = {f"c{number}": type_name for number, type_name in enumerate(_TYPES)}
_FEW_COLUMNS = {"c0": "integer", "c1": "text", "c2": "character varying(20)", "c3": "smallint", "c4": "numeric(10,2)"}

ORDERS, FULL, ITEMS, NOTES, BULK = "public.orders", "public.full_orders", "public.items", "public.notes", "public.bulk"
SHARED = (ORDERS, FULL, ITEMS, NOTES, BULK)


def own_table(owner: int) -> str:
    return f"public.own_{owner}"


def create_tables(connection: "psycopg.Connection[Any]", owners: Sequence[int]) -> None:
    """Create the types and tables of the load."""
    create_boundaries(connection)
    for statement in _DEFINED_TYPES:
        connection.execute(sql(statement))
    everything = ", ".join(f"{name} {type_name}" for name, type_name in _ALL_COLUMNS.items())
    few = ", ".join(f"{name} {type_name}" for name, type_name in _FEW_COLUMNS.items())
    keyed = "owner integer, id integer, big text, {}, PRIMARY KEY (owner, id)"
    connection.execute(sql(f"CREATE TABLE {ORDERS} ({keyed.format(everything)})"))
    connection.execute(sql(f"CREATE TABLE {FULL} ({keyed.format(everything)})"))
    connection.execute(sql(f"CREATE TABLE {ITEMS} ({keyed.format(few)}) PARTITION BY HASH (id)"))
    for part in range(2):
        connection.execute(
            sql(f"CREATE TABLE {ITEMS}_{part} PARTITION OF {ITEMS} FOR VALUES WITH (MODULUS 2, REMAINDER {part})")
        )
    connection.execute(sql(f"CREATE TABLE {NOTES} (owner integer, big text, {few})"))
    connection.execute(sql(f"CREATE TABLE {BULK} (owner integer, id integer, body text, PRIMARY KEY (owner, id))"))
    for owner in owners:
        connection.execute(sql(f"CREATE TABLE {own_table(owner)} ({keyed.format(few)})"))
    for table in (FULL, NOTES):
        connection.execute(sql(f"ALTER TABLE {table} REPLICA IDENTITY FULL"))
    for table in (ORDERS, FULL, NOTES, *map(own_table, owners)):
        connection.execute(sql(f"ALTER TABLE {table} ALTER COLUMN big SET STORAGE EXTERNAL"))


def all_tables(owners: Sequence[int]) -> list[str]:
    return [*SHARED, *map(own_table, owners), BOUNDARY]


class LoadWriter:
    """Runs transactions on a connection, one after the other, until it is told to stop. `connect` opens a new connection."""

    def __init__(
        self,
        owner: int,
        seed: int,
        connect: "Callable[[], psycopg.Connection[Any]]",
        pause_seconds: float,
        large_rows: int = LARGE_ROWS,
    ) -> None:
        self.owner = owner
        self.choice = random.Random(f"{seed}/{owner}")
        self.committed = 0
        """How many transactions were acknowledged."""
        self.failure: str | None = None
        self._connect = connect
        self._pause_seconds = pause_seconds
        self._large_rows = large_rows
        self._own = own_table(owner)
        self._names = 0
        self._run_name = f"{owner}-{self.choice.getrandbits(32):08x}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {owner}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        self._stopping.set()
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"writer {self.owner} does not end"
        assert self.failure is None, self.failure

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        try:
            while not self._stopping.is_set():
                try:
                    connection = connection or self._connect()
                    self.transact(connection)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    # PostgreSQL was killed, or two writers were in each other's way.
                    if connection is not None:
                        connection.close()
                    connection = None
                    self._stopping.wait(0.2)
                self._stopping.wait(self.choice.uniform(0, 2 * self._pause_seconds))
        except Exception:  # noqa: BLE001  top of a thread
            self.failure = traceback.format_exc()
        finally:
            if connection is not None:
                connection.close()

    def transact(self, connection: "psycopg.Connection[Any]") -> None:
        """Run one random transaction."""
        changes: Counter[str] = Counter()
        is_aborted = self.choice.random() < 0.12
        with connection.transaction(force_rollback=is_aborted), connection.cursor() as cursor:
            for _ in range(self.choice.randint(1, 5)):
                self._step(cursor, changes)
            self._names += 1
            name = f"{self._run_name}-{self._names}"
            note_boundary(cursor, name, self.owner, changes, (*SHARED, self._own))
        self.committed += not is_aborted

    def _step(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        kinds: dict[Callable[[psycopg.Cursor[Any], Counter[str]], None], int] = {
            self._insert: 30,
            self._update: 25,
            self._update_key: 10,
            self._delete: 12,
            self._notes: 8,
            self._savepoint: 10,
            self._truncate: 2,
            self._alter: 4,
            self._large: 2,
        }
        (step,) = self.choice.choices([*kinds], [*kinds.values()])
        step(cursor, changes)

    def _insert(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        table = self._keyed_table()
        values = self._values(self._columns(cursor, table))
        given = {"owner": (self.owner, "integer"), "id": (self.choice.randrange(KEYS), "integer"), **values}
        names = ", ".join(given)
        marks = ", ".join(f"%s::{type_name}" for _, type_name in given.values())
        query = f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT (owner, id) DO"
        query += " UPDATE SET big = excluded.big" if self.choice.random() < 0.3 else " NOTHING"
        changes[table] += self._execute(cursor, query, [value for value, _ in given.values()])

    def _update(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        table = self._keyed_table()
        columns = self._columns(cursor, table)
        some = {name: columns[name] for name in self.choice.sample([*columns], min(len(columns), self.choice.randint(1, 4)))}
        values = self._values(some)
        settings = ", ".join(f"{name} = %s::{type_name}" for name, (_, type_name) in values.items())
        query = f"UPDATE {table} SET {settings} WHERE owner = {self.owner} AND mod(id, %s) = 0"
        changes[table] += self._execute(cursor, query, [*(value for value, _ in values.values()), self.choice.randint(1, 9)])

    def _update_key(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        """Give a row another key, if nobody has that. Its events are a delete and an insert."""
        table = self._keyed_table()
        old, new = self.choice.sample(range(KEYS), 2)
        query = (
            f"UPDATE {table} SET id = %s WHERE owner = {self.owner} AND id = %s"
            f" AND NOT EXISTS (SELECT FROM {table} WHERE owner = {self.owner} AND id = %s)"
        )
        changes[table] += 2 * self._execute(cursor, query, [new, old, new])

    def _delete(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        table = self._keyed_table()
        query = f"DELETE FROM {table} WHERE owner = {self.owner} AND id = ANY (%s)"
        changes[table] += self._execute(cursor, query, [self.choice.sample(range(KEYS), 4)])

    def _notes(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        """Change the table that has no key, in which rows may be equal."""
        kind = self.choice.random()
        if kind < 0.6:
            values: list[object] = [self.owner, self._big() if kind < 0.1 else None, self.choice.randrange(3)]
            changes[NOTES] += self._execute(cursor, f"INSERT INTO {NOTES} (owner, big, c0) VALUES (%s, %s, %s)", values)
        elif kind < 0.8:
            query = f"UPDATE {NOTES} SET c1 = %s WHERE owner = %s AND c0 = %s"
            values = [self.choice.choice(("x", "y")), self.owner, self.choice.randrange(3)]
            changes[NOTES] += self._execute(cursor, query, values)
        else:
            query = f"DELETE FROM {NOTES} WHERE owner = %s AND c0 = %s"
            changes[NOTES] += self._execute(cursor, query, [self.owner, self.choice.randrange(3)])

    def _savepoint(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        """Run steps in a transaction within the transaction, which is kept or taken back."""
        inner: Counter[str] = Counter()
        is_taken_back = self.choice.random() < 0.5
        with cursor.connection.transaction(force_rollback=is_taken_back):
            for _ in range(self.choice.randint(1, 3)):
                self._step(cursor, inner)
        if not is_taken_back:
            changes.update(inner)

    def _truncate(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        cursor.execute(sql(f"TRUNCATE {self._own}"))
        changes[self._own] += 1

    def _alter(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        """Alter the writer's own table.

        An alteration is no event. Where a consumer could not know what became of the rows, they are updated, too.
        """
        columns = self._columns(cursor, self._own)
        plain = [name for name in columns if name != "big"]
        kind = self.choice.choice(("add", "add with default", "drop", "rename", "retype"))
        new_name = f"n{self.choice.getrandbits(40):x}"
        if kind == "add" or len(plain) < 4:
            cursor.execute(sql(f"ALTER TABLE {self._own} ADD COLUMN {new_name} {self.choice.choice(_TYPES)}"))
            return
        name = self.choice.choice(plain)
        if kind == "drop":
            cursor.execute(sql(f"ALTER TABLE {self._own} DROP COLUMN {name}"))
            return
        if kind == "add with default":
            cursor.execute(sql(f"ALTER TABLE {self._own} ADD COLUMN {new_name} text DEFAULT 'by default'"))
        elif kind == "rename":
            cursor.execute(sql(f"ALTER TABLE {self._own} RENAME COLUMN {name} TO {new_name}"))
        else:
            name = next((each for each in plain if columns[each] in _RETYPED), name)
            cursor.execute(sql(f"ALTER TABLE {self._own} ALTER COLUMN {name} TYPE {_RETYPED.get(columns[name], 'text')}"))
        changes[self._own] += self._execute(cursor, f"UPDATE {self._own} SET owner = owner", [])

    def _large(self, cursor: "psycopg.Cursor[Any]", changes: Counter[str]) -> None:
        """Change many rows, with a part in the middle that may be taken back."""
        changes[BULK] += self._execute(cursor, f"DELETE FROM {BULK} WHERE owner = %s", [self.owner])
        insert = f"INSERT INTO {BULK} SELECT %s, n, repeat(md5(n::text || %s), 4) FROM generate_series(%s::int, %s::int) AS n"
        salt = str(self.choice.random())
        changes[BULK] += self._execute(cursor, insert, [self.owner, salt, 1, self._large_rows // 2])
        is_taken_back = self.choice.random() < 0.5
        with cursor.connection.transaction(force_rollback=is_taken_back):
            count = self._execute(cursor, insert, [self.owner, salt, self._large_rows // 2 + 1, self._large_rows])
        changes[BULK] += 0 if is_taken_back else count
        changes[BULK] += self._execute(
            cursor, f"UPDATE {BULK} SET body = 'short' WHERE owner = %s AND id %% 10 = 0", [self.owner]
        )

    def _keyed_table(self) -> str:
        return self.choice.choice((ORDERS, FULL, ITEMS, self._own, self._own))

    def _columns(self, cursor: "psycopg.Cursor[Any]", table: str) -> dict[str, str]:
        """Return the types of the columns that are not in the key. Nobody alters them until the transaction ends."""
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass"
            " AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('owner', 'id') ORDER BY attnum",
            (table,),
        )
        return dict(cursor.fetchall())

    def _values(self, columns: Mapping[str, str]) -> dict[str, tuple[object, str]]:
        return {name: (self._big() if name == "big" else self._value(one), one) for name, one in columns.items()}

    def _value(self, type_name: str) -> str | None:
        samples = _SAMPLES.get(type_name, ("other",))
        return None if self.choice.random() < 0.15 else self.choice.choice(samples)

    def _big(self) -> str:
        if self.choice.random() < 0.5:
            return "small"
        return self.choice.randbytes(BIG_TEXT // 2).hex()

    def _execute(self, cursor: "psycopg.Cursor[Any]", query: str, values: Sequence[object]) -> int:
        cursor.execute(sql(query), values)
        return cursor.rowcount


class Load:
    """All writers of a run."""

    def __init__(
        self, owners: Sequence[int], seed: int, connect: "Callable[[], psycopg.Connection[Any]]", pause_seconds: float = 0.02
    ) -> None:
        self.writers = [LoadWriter(owner, seed, connect, pause_seconds) for owner in owners]

    def start(self) -> None:
        for writer in self.writers:
            writer.start()

    def stop(self) -> None:
        for writer in self.writers:
            writer.stop()

    @property
    def committed(self) -> int:
        return sum(writer.committed for writer in self.writers)

    def await_committed(self, count: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.committed < count:
            assert time.monotonic() < deadline, f"{self.committed} transactions were committed in {seconds:g} s, not {count}"
            failed = [writer.failure for writer in self.writers if writer.failure is not None]
            assert not failed, failed[0]
            time.sleep(0.05)
