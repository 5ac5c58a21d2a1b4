"""Workers on a captured PostgreSQL: rows that the checker follows one by one, and transactions of all kinds."""

from collections.abc import Callable
from typing import Any

import psycopg

from chaos.history import CallAnswer, CallOutcome, ChangeCall, RowsCall
from chaos.recorder import Recorder
from chaos.workers.tables import KEYS
from chaos.workers.worker import Worker, WorkerContext
from tests.support.postgres_load import LoadWriter

SURFACE = "postgres"
SOURCE = "pg"
RELATION = "followed.rows"
TABLE = f"{SOURCE}.{RELATION}"
CREATE = (
    f"CREATE SCHEMA followed; CREATE TABLE {RELATION} (id bigint PRIMARY KEY, body text);"
    # Routes show what has changed.
    f" ALTER TABLE {RELATION} REPLICA IDENTITY FULL"
)
_UPSERT = f"INSERT INTO {RELATION} VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
_DELETE = f"DELETE FROM {RELATION} WHERE id = %s"
_PAUSE_SECONDS = 0.3
LARGE_ROWS = 400
"""Enough for PostgreSQL to stream the transaction, and few enough for a run of minutes on small files."""

Connect = Callable[[], "psycopg.Connection[Any]"]


class PostgresWorker(Worker):
    """A worker with a connection of its own, which is opened again after each loss."""

    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, connect: Connect) -> None:
        super().__init__(name, context, seed, per_second)
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    def end(self) -> None:
        self.disconnect()

    def connection(self) -> "psycopg.Connection[Any] | None":
        """Return the connection; `None` if there is none now."""
        if self._connection is None:
            try:
                self._connection = self._connect()
            except psycopg.OperationalError:
                self.pause(_PAUSE_SECONDS)
        return self._connection

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class PostgresRowWriter(PostgresWorker):
    """Makes one to three changes in a transaction, on few rows, so that writers conflict."""

    def step(self) -> None:
        connection = self.connection()
        if connection is None:
            return
        rows = [
            (str(self.choice.randrange(KEYS)), self.new_value() if self.choice.random() < 0.8 else None)
            for _ in range(self.choice.randint(1, 3))
        ]
        changes = ChangeCall(tuple((TABLE, key, value) for key, value in rows))
        call = self.context.recorder.invoke(self.name, SURFACE, changes)
        try:
            with connection.transaction():
                for key, value in rows:
                    connection.execute(*((_DELETE, (key,)) if value is None else (_UPSERT, (key, value))))
        except psycopg.Error as error:
            # An error of the server says that the transaction was rolled back; a lost connection says nothing.
            outcome = CallOutcome.UNKNOWN if connection.closed else CallOutcome.FAILED
            self.context.recorder.complete(call, outcome, error=type(error).__name__)
            self.disconnect()
            return
        self.context.recorder.complete(call, CallOutcome.OK)


class PostgresLoadWorker(PostgresWorker):
    """Runs random transactions of all kinds, which are judged as a whole when the run ends."""

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, connect: Connect, owner: int) -> None:
        super().__init__(name, context, seed, per_second, connect)
        self._writer = LoadWriter(owner, seed, connect, 0.0, LARGE_ROWS)

    def step(self) -> None:
        connection = self.connection()
        if connection is None:
            return
        try:
            self._writer.transact(connection)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.disconnect()


def read_rows(recorder: Recorder, connect: Connect, worker: str) -> None:
    """Read all rows at the end."""
    call = recorder.invoke(worker, SURFACE, RowsCall(TABLE, final=True))
    with connect() as connection:
        rows = connection.execute(f"SELECT id, body FROM {RELATION} ORDER BY id".encode()).fetchall()
    recorder.complete(call, CallOutcome.OK, CallAnswer(rows=tuple((str(key), str(value)) for key, value in rows)))
