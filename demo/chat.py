"""A chat whose messages are rows of a table, and a writer that records what was acknowledged."""

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
    """One statement and its effect: the rows of each operation, and the rows that the filtered route takes."""

    sql: str
    params: list[object]
    changes: Counter[str]
    visible_in_42: int = 0
    made: Sequence[int] = ()
    """The ids of the rows that the statement adds."""
    removed: int | None = None


class AckedRows:
    """What the server has acknowledged, and the rows that exist by that."""

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

    def write(self, api: DemoApi, acked: AckedRows, statements: int) -> None:
        """Send this many statements. Stops early when the server is gone, with the last one unanswered."""
        for step in self._steps(acked, statements):
            try:
                api.sql(step.sql, step.params)
            except Unanswered:
                acked.unanswered = step
                return
            acked.add(step)

    def _steps(self, acked: AckedRows, statements: int) -> Iterator[Step]:
        """Make statements one by one, each when the outcome of the one before is known."""
        for _ in range(statements):
            chance = self._random.random()
            if chance < 0.5 or len(acked.alive) < 2 * ROWS_PER_INSERT:
                yield self._insert()
            elif chance < 0.8:
                yield self._update(acked)
            else:
                yield self._delete(acked)

    def _insert(self) -> Step:
        ids = range(self._next_id, self._next_id + ROWS_PER_INSERT)
        self._next_id = ids.stop
        rows = []
        for new in ids:
            visible = self._random.random() < 0.8
            rows.append([new, self._random.choice(CHANNELS), visible, "ann", f"message {new}"])
        taken = sum(row[1] == 42 and row[2] is True for row in rows)
        return Step("INSERT INTO chat.messages VALUES (?, ?, ?, ?, ?)", list(rows), Counter(insert=len(rows)), taken, made=ids)

    def _update(self, acked: AckedRows) -> Step:
        chosen = self._random.choice(acked.alive)
        return Step("UPDATE chat.messages SET body = ? WHERE id = ?", ["edited", chosen], Counter(update=1))

    def _delete(self, acked: AckedRows) -> Step:
        chosen = self._random.choice(acked.alive)
        return Step("DELETE FROM chat.messages WHERE id = ?", [chosen], Counter(delete=1), removed=chosen)
