"""Workers over SQL: INSERT into topics, and SELECT from them."""

from typing import Any

from chaos.api import RefusedError, RunApi
from chaos.history import CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord, SendCall
from chaos.workers.http_topics import HttpWorker
from chaos.workers.worker import text

SURFACE = "sql"
_COLUMNS = 'partition, "offset", cursor, key, value'
_PAGE = 500


class SqlPublisher(HttpWorker):
    """Inserts one or two records in one statement, without retries: one without an answer stays unknown."""

    surface = SURFACE

    def step(self) -> None:
        topic = self.choice.choice(self.topics)
        records = tuple((self.choice.choice(topic.locations), self.new_value()) for _ in range(self.choice.randint(1, 2)))
        call = self.context.recorder.invoke(self.name, SURFACE, SendCall(records, atomic=True))
        rows = ", ".join("(?, ?)" for _ in records)
        params = [part for location, value in records for part in (location.partition, value)]
        try:
            self.api.sql(f"INSERT INTO {topic.name} (partition, value) VALUES {rows}", *params)
        except RefusedError as error:
            self.refused(call, error)
            return
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(locations=tuple(location for location, _ in records)))


class SqlReader(HttpWorker):
    """Reads one partition, from where the last read ended."""

    surface = SURFACE
    _sessions = 0
    _next = 0
    _place: RecordLocation

    def begin(self) -> None:
        self._start_over()

    def step(self) -> None:
        if self.choice.random() < 1 / 16:
            self._start_over()
        what = PollCall(f"{self.name}/{self._sessions}", committed=True)
        call = self.context.recorder.invoke(self.name, SURFACE, what)
        condition = f'partition = {self._place.partition} AND "offset" >= {self._next}'
        try:
            seen = select(self.api, self._place.topic, f'WHERE {condition} ORDER BY "offset" LIMIT {_PAGE}')
        except RefusedError as error:
            self.refused(call, error)
            return
        self._next = seen[-1].location.offset + 1 if seen else self._next
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=tuple(seen)))

    def _start_over(self) -> None:
        self._sessions += 1
        self._place = self.choice.choice(self.locations)
        self._next = 0


def select(api: RunApi, topic: str, rest: str) -> list[SeenRecord]:
    rows: list[list[Any]] = api.sql(f'SELECT {_COLUMNS} FROM "{topic}" {rest}')["rows"]
    return [
        SeenRecord(RecordLocation(topic, partition, offset), text(value), cursor, key=key)
        for partition, offset, cursor, key, value in rows
    ]


def select_all(api: RunApi, topic: str) -> list[SeenRecord]:
    """Return everything, in pages of cursors, so that no answer is truncated."""
    found: list[SeenRecord] = []
    cursor = -1
    while page := select(api, topic, f"WHERE cursor > {cursor} ORDER BY cursor LIMIT 20000"):
        found += page
        cursor = page[-1].cursor
    return found
