"""Any writes to a table: its rows equal a dictionary, and its change events, replayed in order, rebuild them.

In between the tables are closed and opened again, also without their file, and with a file from an earlier time: what is
missing comes from the log.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.clock import SystemClock
from tailrace.model.errors import ConstraintError, SqlError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.parse import parse
from tailrace.sql.tables.tables import FILE_NAME, Tables
from tailrace.store.memory import MemoryStore
from tests.support.brokers import running_broker
from tests.support.tables import TableSql, replayed

CREATE = "CREATE TABLE p.t (a smallint, b text, v decimal(6, 2), j json, ok boolean, PRIMARY KEY (a, b))"

Key = tuple[int, str]
Rest = tuple[Decimal | None, Any, bool | None]
Model = dict[Key, Rest]


class Put(NamedTuple):
    """INSERT of some rows; on conflict an error, nothing, or the new value."""

    rows: list[tuple[Key, Rest]]
    on_conflict: str

    def text(self) -> str:
        return f"INSERT INTO p.t VALUES (?, ?, ?, ?, ?) {self.on_conflict}"

    def params(self) -> list[Any]:
        return [[*key, None if v is None else str(v), json.dumps(j), ok] for key, (v, j, ok) in self.rows]

    def apply(self, model: Model) -> None:
        for key, rest in self.rows:
            if key in model:
                if not self.on_conflict:
                    raise ConstraintError("there already")
                if "UPDATE" in self.on_conflict:
                    model[key] = (rest[0], model[key][1], model[key][2])
            else:
                model[key] = rest


class Raise(NamedTuple):
    """UPDATE of all rows of one `a`."""

    a: int
    by: Decimal

    def text(self) -> str:
        return "UPDATE p.t SET v = v + ?, ok = NOT ok WHERE a = ?"

    def params(self) -> list[Any]:
        return [str(self.by), self.a]

    def apply(self, model: Model) -> None:
        for key, (v, j, ok) in list(model.items()):
            if key[0] == self.a:
                new = None if v is None else v + self.by
                if new is not None and abs(new) >= 10_000:
                    raise SqlError("too many digits")
                model[key] = (new, j, None if ok is None else not ok)


class Move(NamedTuple):
    """UPDATE of a key."""

    old: Key
    new: Key

    def text(self) -> str:
        return "UPDATE p.t SET a = ?, b = ? WHERE a = ? AND b = ?"

    def params(self) -> list[Any]:
        return [*self.new, *self.old]

    def apply(self, model: Model) -> None:
        if self.old in model and self.old != self.new:
            if self.new in model:
                raise ConstraintError("there already")
            model[self.new] = model.pop(self.old)


class Take(NamedTuple):
    """DELETE of all rows up to an `a`."""

    a: int

    def text(self) -> str:
        return "DELETE FROM p.t WHERE a <= ?"

    def params(self) -> list[Any]:
        return [self.a]

    def apply(self, model: Model) -> None:
        for key in [key for key in model if key[0] <= self.a]:
            del model[key]


Write = Put | Raise | Move | Take


class Reopen(NamedTuple):
    file: str
    """Whether the file stays, is lost, or is one from before."""


keys = st.tuples(st.integers(-2, 4), st.sampled_from(["", "x", "X", "é'\"", "\U0001f600"]))
amounts = st.none() | st.decimals(-5000, 5000, places=2)
# A jsonb of PostgreSQL can't hold the character 0.
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
leaves = st.integers(-9, 9) | st.text(letters, max_size=3) | st.booleans()
documents = (
    st.none()
    | leaves
    | st.lists(leaves | st.none(), max_size=2)
    | st.dictionaries(st.text(letters, max_size=2), leaves, max_size=2)
)
rows = st.tuples(keys, st.tuples(amounts, documents, st.none() | st.booleans()))
conflicts = st.sampled_from(["", "ON CONFLICT DO NOTHING", "ON CONFLICT (a, b) DO UPDATE SET v = excluded.v"])
writes = st.one_of(
    st.builds(Put, st.lists(rows, min_size=1, max_size=4), conflicts),
    st.builds(Put, st.lists(rows, min_size=1, max_size=4), conflicts),
    st.builds(Raise, st.integers(-2, 4), st.decimals(-5000, 5000, places=2)),
    st.builds(Move, keys, keys),
    st.builds(Take, st.integers(-2, 2)),
)
steps = st.one_of(
    st.lists(writes, min_size=1, max_size=3),
    st.lists(writes, min_size=1, max_size=3),
    st.builds(Reopen, st.sampled_from(["stays", "lost", "old"])),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=12))
def test_rows_equal_a_dictionary_and_the_events_rebuild_them(plan: list[list[Write] | Reopen]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_check(plan, Path(folder)))


async def _check(plan: list[list[Write] | Reopen], folder: Path) -> None:
    async with running_broker(MemoryStore()) as broker:

        async def open_tables() -> Tables:
            return await Tables.open(folder, broker, SystemClock(), DEFAULT_LIMITS)

        sql = TableSql(broker, await open_tables())
        model: Model = {}
        try:
            await sql.run(CREATE)
            for step in plan:
                if isinstance(step, Reopen):
                    await sql.tables.close()
                    _disturb(folder, step.file)
                    sql.tables = await open_tables()
                else:
                    model = await _transact(sql, step, model)
                assert await _rows(sql) == model
            kept = replayed(await sql.events("p.t"))
            assert {_key(row): _rest(row) for row in kept.values()} == model
        finally:
            await sql.tables.close()


async def _transact(sql: TableSql, writes: list[Write], model: Model) -> Model:
    """All or nothing, in the table as in the model."""
    expected = dict(model)
    refused: Exception | None = None
    try:
        for write in writes:
            write.apply(expected)
    except SqlError as error:
        refused = error
    told = await _outcome(lambda: _run(sql, writes))
    assert (told is None) == (refused is None), f"{told!r} instead of {refused!r}"
    return model if refused is not None else expected


async def _run(sql: TableSql, writes: list[Write]) -> None:
    await sql.tables.write([parse(write.text())[0] for write in writes], [write.params() for write in writes])  # type: ignore[misc]


async def _outcome(run: Callable[[], Any]) -> Exception | None:
    try:
        await run()
    except SqlError as error:
        return error
    return None


def _disturb(folder: Path, file: str) -> None:
    """The file is closed now, so it is whole without its log."""
    here, saved = folder / FILE_NAME, folder / "saved.db"
    if file == "lost":
        here.unlink()
    elif file == "old" and saved.exists():
        shutil.copy(saved, here)
    if here.exists():
        shutil.copy(here, saved)


async def _rows(sql: TableSql) -> Model:
    found = await sql.rows("SELECT a, b, v, j, ok FROM p.t")
    return {(a, b): (v, j, ok) for a, b, v, j, ok in found}  # type: ignore[misc]


def _key(row: dict[str, Any]) -> Key:
    return row["a"], row["b"]


def _rest(row: dict[str, Any]) -> Rest:
    return None if row["v"] is None else Decimal(row["v"]), row["j"], row["ok"]
