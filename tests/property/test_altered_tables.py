"""Any writes, ALTER TABLE, TRUNCATE, checkpoints, and lost or outdated files: the table is what a model in Python says."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.tables.tables import FILE_NAME, Tables
from tailrace.store.memory import MemoryStore
from tests.support.aio import until
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql

LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, snapshot_rows=2)
WIDER = {"smallint": "integer", "integer": "bigint", "bigint": "decimal(21, 2)", "decimal(21, 2)": "text"}
KEYS = st.integers(0, 5)
NUMBERS = st.none() | st.integers(0, 99)
PLACES = st.integers(0, 9)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, NUMBERS),
    st.tuples(st.just("put"), KEYS, NUMBERS),
    st.tuples(st.just("delete"), KEYS, NUMBERS),
    st.tuples(st.just("add"), PLACES, NUMBERS),
    st.tuples(st.sampled_from(["drop", "rename", "widen"]), PLACES, NUMBERS),
    st.tuples(st.sampled_from(["truncate", "lose", "keep", "restore", "checkpoint"]), PLACES, NUMBERS),
)


class Model:
    """The table, with every value as the text that it is shown as."""

    def __init__(self) -> None:
        self.columns: list[list[str]] = [["id", "integer"], ["c0", "smallint"]]
        self.rows: dict[int, list[str | None]] = {}
        self.names = 0

    def shown(self) -> list[list[str | None]]:
        return [self.rows[key] for key in sorted(self.rows)]

    def statement(self, kind: str, place: int, number: int | None) -> str | None:
        """Change the model, and return the statement that does the same."""
        own = self.columns[1:]
        name, type_ = own[place % len(own)] if own else ("", "")
        at = 1 + place % len(own) if own else 0
        match kind:
            case "put":
                self.rows[place] = [str(place), *(_text(number, type_) for _, type_ in own)]
                values = ", ".join([str(place), *(_literal(number, type_) for _, type_ in own)])
                names = ", ".join(name for name, _ in self.columns)
                changes = ", ".join(f"{name} = excluded.{name}" for name, _ in own)
                action = f"DO UPDATE SET {changes}" if own else "DO NOTHING"
                return f"INSERT INTO t ({names}) VALUES ({values}) ON CONFLICT ({self.columns[0][0]}) {action}"
            case "delete":
                self.rows.pop(place, None)
                return f"DELETE FROM t WHERE {self.columns[0][0]} = {place}"
            case "truncate":
                self.rows.clear()
                return "TRUNCATE t"
            case "add":
                self.names += 1
                new = ["smallint", "integer", "bigint", "text"][place % 4]
                self.columns.append([f"c{self.names}", new])
                for row in self.rows.values():
                    row.append(_text(number, new))
                return f"ALTER TABLE t ADD COLUMN c{self.names} {new} DEFAULT {_literal(number, new)}"
            case "drop" if own:
                del self.columns[at]
                for row in self.rows.values():
                    del row[at]
                return f"ALTER TABLE t DROP COLUMN {name}"
            case "rename":
                at = place % len(self.columns)
                old = self.columns[at][0]
                self.names += 1
                self.columns[at][0] = f"c{self.names}"
                return f"ALTER TABLE t RENAME COLUMN {old} TO c{self.names}"
            case "widen" if type_ in WIDER:
                self.columns[at][1] = WIDER[type_]
                if WIDER[type_].startswith("decimal"):
                    for row in self.rows.values():
                        row[at] = None if row[at] is None else f"{row[at]}.00"
                return f"ALTER TABLE t ALTER COLUMN {name} TYPE {WIDER[type_]}"
        return None


def _text(number: int | None, type_: str) -> str | None:
    return None if number is None else f"{number}.00" if type_.startswith("decimal") else str(number)


def _literal(number: int | None, type_: str) -> str:
    return "NULL" if number is None else f"'{number}'" if type_ == "text" else str(number)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=25))
def test_an_altered_table_is_what_the_model_says(steps: list[tuple[str, int, int | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(Path(folder), steps))


async def _play(folder: Path, steps: list[tuple[str, int, int | None]]) -> None:
    clock, model = ManualClock(), Model()
    file = folder / FILE_NAME
    async with running_broker(MemoryStore(clock), clock, LIMITS) as broker:
        sql = TableSql(broker, await Tables.open(folder, broker, clock, LIMITS))
        kept: bytes | None = None
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, c0 smallint)")
        for kind, place, number in steps:
            text = model.statement(kind, place, number)
            if text is not None:
                await sql.run(text)
            elif kind == "checkpoint":
                taken = broker.changes.stats.checkpoints
                broker.changes.checkpoints.want(broker.tables.get("t"))
                await until(lambda: broker.changes.stats.checkpoints > taken)  # noqa: B023  awaited at once
            elif kind in ("lose", "keep", "restore"):
                await sql.tables.close()
                if kind == "lose":
                    file.unlink()
                elif kind == "keep":
                    kept = file.read_bytes()
                elif kept is not None:
                    file.write_bytes(kept)
                sql.tables = await Tables.open(folder, broker, clock, LIMITS)
        found: list[tuple[Any, ...]] = await sql.rows(f"SELECT * FROM t ORDER BY {model.columns[0][0]}")
        assert [[None if cell is None else str(cell) for cell in row] for row in found] == model.shown()
        sql.queries.close()
        await sql.tables.close()
