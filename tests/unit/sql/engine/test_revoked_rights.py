"""What is remembered of a text passes no right on: neither to somebody else, nor after a right was revoked."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.broker.security.principals import act_as, current_principal
from tailrace.model.errors import InvalidRequestError, SqlForbiddenError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.security import Principal
from tailrace.sql.engine import StatementEngine
from tailrace.sql.lazy_engine import LazySqlEngine
from tailrace.sql.results import ResultColumn, ResultRows
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.sql import AUTHENTICATED, SqlClient, acting_as, running_sql

SETUP = """
CREATE TABLE app.t (id int PRIMARY KEY, n int); INSERT INTO app.t VALUES (1, 10), (2, 20);
CREATE VIEW app.v AS SELECT * FROM app.t; CREATE TOPIC app.o; INSERT INTO app.o (value) VALUES ('v');
CREATE USER alice; CREATE USER bob;
"""
GRANT = "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE app.t, app.v TO alice; GRANT CONSUME, PUBLISH ON TOPIC app.o TO alice"
REVOKE = GRANT.replace("GRANT", "REVOKE").replace(" TO ", " FROM ")
TEXTS = [
    "SELECT n FROM app.t WHERE id = 1",
    "SELECT * FROM app.t WHERE id = 1 AND n = 10",
    "SELECT n + 1 FROM app.t WHERE n >= 10 ORDER BY n",
    "SELECT n, count(*) FROM app.t GROUP BY n",
    "SELECT * FROM app.v WHERE id = 1",
    "SELECT value FROM app.o",
    "SELECT value FROM LATEST(app.o)",
    "SELECT count(*) FROM table_changes('app.t')",
    "SELECT count(*) FROM _changes.app.t",
    "EXPLAIN SELECT n FROM app.t WHERE id = 1",
    "EXPLAIN ANALYZE SELECT n + 1 FROM app.t WHERE n >= 10",
    "BEGIN; SELECT n FROM app.t WHERE id = 1; COMMIT",
    "BEGIN; SELECT count(*) FROM app.t GROUP BY n; COMMIT",
    "INSERT INTO app.t (id, n) VALUES (1, 1) ON CONFLICT DO NOTHING",
    "INSERT INTO app.o (value) VALUES ('x')",
    "UPDATE app.t SET n = n WHERE id = 1",
    "DELETE FROM app.t WHERE id = 99",
    "DELETE FROM app.t WHERE id IN (SELECT id + 50 FROM app.t)",
]


@pytest.mark.parametrize("text", TEXTS)
@on_loop
async def test_a_right_that_is_revoked_is_gone_for_texts_that_were_run_before(text: str) -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; {GRANT}")
        for _ in range(2):
            with acting_as("alice"):
                for _ in range(3):
                    await sql.run(text)
            with acting_as("bob"), pytest.raises(SqlForbiddenError):
                await sql.run(text)
            await sql.run(REVOKE)
            with acting_as("alice"), pytest.raises(SqlForbiddenError):
                await sql.run(text)
            await sql.run(GRANT)


@on_loop
async def test_a_row_that_is_found_at_once_is_checked_each_time() -> None:
    text = "SELECT n FROM app.t WHERE id = ?"
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; {GRANT}")
        with acting_as("alice"):
            await sql.run(text, [1])
            found = sql.engine.execute_at_once(text, [1])
            assert found is not None
            assert list(found.rows) == [(10,)]
        with acting_as("bob"):
            assert sql.engine.execute_at_once(text, [1]) is None
        await sql.run(REVOKE)
        with acting_as("alice"):
            assert sql.engine.execute_at_once(text, [1]) is None


@pytest.mark.parametrize("values", ["(5, 5)", "(5, 5), (6, 6)", "(?, ?)"])
@on_loop
async def test_inserts_of_plain_values_are_checked_each_time(values: str) -> None:
    text, params = f"INSERT INTO app.t (id, n) VALUES {values}", [[5, 5]] if "?" in values else []
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; {GRANT}")
        with acting_as("alice"):
            await sql.run(text, params)
        await sql.run(f"{REVOKE}; DELETE FROM app.t WHERE id > 2")
        for name in ("alice", "bob"):
            with acting_as(name), pytest.raises(SqlForbiddenError, match=r"may not insert into 'app.t'"):
                await sql.run(text, params)
        assert await sql.rows("SELECT id FROM app.t ORDER BY id") == [(1,), (2,)]


class _Sink:
    media_type = "rows"

    def load(self) -> None: ...
    def begin(self, columns: Sequence[ResultColumn]) -> bytes:
        return b""

    def rows(self, rows: ResultRows) -> bytes:
        return b"".join(repr(tuple(row)).encode() for row in rows)

    def end(self) -> bytes:
        return b""


@on_loop
async def test_streams_are_checked_each_time() -> None:
    async def streamed(sql: SqlClient) -> bytes:
        with sql.broker.answers.answer() as answer:
            stream = await sql.engine.stream("SELECT n FROM app.t ORDER BY n", (), _Sink(), answer)
            parts = []
            while part := await stream.take():
                parts.append(part)
            stream.close()
        return b"".join(parts)

    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; {GRANT}")
        with acting_as("alice"):
            assert await streamed(sql) == b"(10,)(20,)"
        await sql.run(REVOKE)
        with acting_as("alice"), pytest.raises(SqlForbiddenError):
            await streamed(sql)


@on_loop
async def test_a_view_is_read_with_the_rights_of_its_reader() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; CREATE VIEW app.outer AS SELECT * FROM app.v")
        await sql.run("GRANT SELECT ON TABLE app.outer, app.v TO alice; GRANT SELECT ON TABLE app.t, app.outer TO bob")
        for name in ("alice", "bob"):
            with acting_as(name), pytest.raises(SqlForbiddenError, match=r"may not read 'app.outer'"):
                await sql.run("SELECT * FROM app.outer")
        await sql.run("GRANT SELECT ON TABLE app.t TO alice; GRANT SELECT ON TABLE app.v TO bob")
        for name in ("alice", "bob"):
            with acting_as(name):
                assert len(await sql.rows("SELECT * FROM app.outer")) == 2


@on_loop
async def test_requests_at_the_same_time_have_their_own_rights() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"{SETUP}; {GRANT}")

        async def ask(name: str, text: str) -> str:
            act_as(Principal(name))
            try:
                await sql.run(text)
            except SqlForbiddenError:
                return "forbidden"
            return "allowed"

        asked = [(name, text) for text in TEXTS for name in ("alice", "bob")] * 2
        found = await asyncio.gather(*(asyncio.create_task(ask(*each)) for each in asked))
        wrong = [each for each, outcome in zip(asked, found, strict=True) if (outcome == "allowed") != (each[0] == "alice")]
        assert wrong == []


@on_loop
async def test_the_engine_does_not_work_for_the_principal_of_the_first_request(tmp_path: Path) -> None:
    seen = []

    async def open_and_note(*given: object) -> StatementEngine:
        seen.append(current_principal().name)
        raise InvalidRequestError("opened")

    async with running_broker(security=AUTHENTICATED) as broker:
        with pytest.MonkeyPatch.context() as patched, acting_as("alice"):
            patched.setattr(StatementEngine, "open", open_and_note)
            lazy = await LazySqlEngine.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
            with pytest.raises(InvalidRequestError, match="opened"):
                await lazy.execute("SELECT 1")
            await lazy.close()
    assert seen == ["SERVER"]
