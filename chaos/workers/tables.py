"""Workers on tables, over SQL: transactions of upserts and deletes, and reads of whole tables."""

import json
from collections.abc import Sequence
from typing import Any

from chaos.api import RefusedError, RunApi
from chaos.history import DELETED, CallAnswer, CallOutcome, ChangeCall, RowsCall, SeenRecord
from chaos.recorder import Recorder
from chaos.workers.http_topics import HttpWorker
from chaos.workers.worker import WorkerContext

SURFACE = "sql"
KEYS = 30

CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, body TEXT)"
_UPSERT = "INSERT INTO {} (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
_DELETE = "DELETE FROM {} WHERE id = ?"


class TableWriterWorker(HttpWorker):
    """Makes one to three changes in a transaction, on few rows, so that writers conflict."""

    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, tables: Sequence[str]) -> None:
        super().__init__(name, context, seed, per_second, ())
        self._tables = tables

    def step(self) -> None:
        rows = [self._row() for _ in range(self.choice.randint(1, 3))]
        call = self.context.recorder.invoke(self.name, SURFACE, ChangeCall(tuple(rows)))
        statements = [(_DELETE if value is None else _UPSERT).format(table) for table, _, value in rows]
        params = [part for _, key, value in rows for part in ((int(key),) if value is None else (int(key), value))]
        text = statements[0] if len(rows) == 1 else "; ".join(("BEGIN", *statements, "COMMIT"))
        try:
            self.api.sql(text, *params)
        except RefusedError as error:
            self.refused(call, error)
            return
        self.context.recorder.complete(call, CallOutcome.OK)

    def _row(self) -> tuple[str, str, str | None]:
        value = self.new_value() if self.choice.random() < 0.8 else None
        return self.choice.choice(self._tables), str(self.choice.randrange(KEYS)), value


class TableReaderWorker(HttpWorker):
    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, tables: Sequence[str]) -> None:
        super().__init__(name, context, seed, per_second, ())
        self._tables = tables

    def step(self) -> None:
        read_table(self.context.recorder, self.api, self.name, self.choice.choice(self._tables))


def read_table(recorder: Recorder, api: RunApi, worker: str, table: str, *, final: bool = False) -> None:
    call = recorder.invoke(worker, SURFACE, RowsCall(table, final))
    try:
        rows = api.sql(f"SELECT id, body FROM {table} ORDER BY id")["rows"]
    except RefusedError as error:
        recorder.complete(call, error.outcome, error=str(error))
        return
    recorder.complete(call, CallOutcome.OK, CallAnswer(rows=tuple((str(key), str(value)) for key, value in rows)))


def change_seen(seen: SeenRecord) -> SeenRecord:
    """Convert an event of a table's own change topic to the key and value of the row."""
    event = json.loads(seen.value)
    return seen._replace(key=str(event["key"]["id"]), value=_body(event["new"]))


def routed_seen(seen: SeenRecord) -> SeenRecord:
    """Convert a routed change with the payload `diff` to the key and value of the row."""
    change = json.loads(seen.value)
    body = change["changed"]["body"]
    return seen._replace(key=str(change["key"]["id"]), value=body.get("new", DELETED))


def _body(row: dict[str, Any] | None) -> str:
    return DELETED if row is None else str(row["body"])
