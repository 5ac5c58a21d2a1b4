"""A chat whose messages are rows of a table, and somebody who writes in it and keeps book of what was acknowledged."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from demo.server import DemoApi, Unanswered

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
    visible_in_42: int = 0
    made: Sequence[int] = ()
    """Ids of the rows that are there afterwards and were not before."""
    removed: int | None = None


class AckedRows:
    """What the writer was told, and which rows there are by that."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self.visible_in_42 = 0
        self.alive: list[int] = []
        self.unanswered: Step | None = None

    def add(self, step: Step) -> None:
        self.changes += step.changes
        self.visible_in_42 += step.visible_in_42
        self.alive += step.made
        if step.removed is not None:
            self.alive.remove(step.removed)


class Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._next_id = 1

    def write(self, api: DemoApi, book: AckedRows, statements: int) -> None:
        """Send so many statements; stop early when the server is gone, with the last one unanswered."""
        for step in self._steps(book, statements):
            try:
                api.sql(step.sql, step.params)
            except Unanswered:
                book.unanswered = step
                return
            book.add(step)

    def _steps(self, book: AckedRows, statements: int) -> Iterator[Step]:
        """Each is made when the one before it is in the book, or is known not to be."""
        for _ in range(statements):
            chance = self._random.random()
            if chance < 0.5 or len(book.alive) < 2 * ROWS_PER_INSERT:
                yield self._insert()
            elif chance < 0.8:
                yield self._update(book)
            else:
                yield self._delete(book)

    def _insert(self) -> Step:
        ids = range(self._next_id, self._next_id + ROWS_PER_INSERT)
        self._next_id = ids.stop
        rows = []
        for new in ids:
            visible = self._random.random() < 0.8
            rows.append([new, self._random.choice(CHANNELS), visible, "ann", f"message {new}"])
        taken = sum(row[1] == 42 and row[2] is True for row in rows)
        return Step("INSERT INTO chat.messages VALUES (?, ?, ?, ?, ?)", list(rows), Counter(insert=len(rows)), taken, made=ids)

    def _update(self, book: AckedRows) -> Step:
        chosen = self._random.choice(book.alive)
        return Step("UPDATE chat.messages SET body = ? WHERE id = ?", ["edited", chosen], Counter(update=1))

    def _delete(self, book: AckedRows) -> Step:
        chosen = self._random.choice(book.alive)
        return Step("DELETE FROM chat.messages WHERE id = ?", [chosen], Counter(delete=1), removed=chosen)
