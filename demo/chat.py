"""A chat whose messages are rows of a table, and somebody who writes in it and keeps book of what was acknowledged."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from demo.server import Api, Unanswered

CHANNELS = (41, 42, 43)
SET_UP = """
CREATE TABLE chat.messages (id BIGINT, channel_id INT, is_visible BOOLEAN, author TEXT, body TEXT, PRIMARY KEY (id));
CREATE TOPIC app.new_messages PARTITIONS 4;
CREATE TOPIC app.changed_keys;
ALTER TOPIC app.new_messages ADD SOURCE chat.messages ON INSERT
    WHERE (is_visible = true AND channel_id = 42) WITH (payload = 'full');
ALTER TOPIC app.changed_keys ADD SOURCE chat.messages ON INSERT, UPDATE, DELETE WITH (payload = 'key');
"""
ROWS_PER_INSERT = 25


class Step(NamedTuple):
    """One statement, and what it changes: so many rows by operation, and so many that the filtered route takes."""

    sql: str
    params: list[object]
    changes: Counter[str]
    visible_in_42: int


class Book:
    """What the writer was told."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self.visible_in_42 = 0
        self.unanswered: Step | None = None

    def add(self, step: Step) -> None:
        self.changes += step.changes
        self.visible_in_42 += step.visible_in_42


class Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._next_id = 1
        self._alive: list[int] = []

    def write(self, api: Api, book: Book, statements: int) -> None:
        """Send so many statements; stop early when the server is gone, with the last one unanswered."""
        for step in self._steps(statements):
            try:
                api.sql(step.sql, step.params)
            except Unanswered:
                book.unanswered = step
                return
            book.add(step)

    def _steps(self, statements: int) -> Iterator[Step]:
        for _ in range(statements):
            chance = self._random.random()
            if chance < 0.5 or len(self._alive) < 2 * ROWS_PER_INSERT:
                yield self._insert()
            elif chance < 0.8:
                yield self._update()
            else:
                yield self._delete()

    def _insert(self) -> Step:
        rows = []
        for _ in range(ROWS_PER_INSERT):
            visible = self._random.random() < 0.8
            rows.append([self._next_id, self._random.choice(CHANNELS), visible, "ann", f"message {self._next_id}"])
            self._alive.append(self._next_id)
            self._next_id += 1
        taken = sum(row[1] == 42 and row[2] is True for row in rows)
        return Step("INSERT INTO chat.messages VALUES (?, ?, ?, ?, ?)", list(rows), Counter(insert=len(rows)), taken)

    def _update(self) -> Step:
        chosen = self._random.choice(self._alive)
        return Step("UPDATE chat.messages SET body = ? WHERE id = ?", ["edited", chosen], Counter(update=1), 0)

    def _delete(self) -> Step:
        chosen = self._alive.pop(self._random.randrange(len(self._alive)))
        return Step("DELETE FROM chat.messages WHERE id = ?", [chosen], Counter(delete=1), 0)
