"""Quotas that are set and shown by SQL: the same ones that Kafka's tools set."""

import pytest

from tailrace.model.errors import ForbiddenError, InvalidRequestError, SqlError
from tailrace.model.quota import DEFAULT, QuotaEntity
from tailrace.model.security import Principal
from tests.support.aio import on_loop
from tests.support.sql import AUTHENTICATED, acting_as, running_sql

ALICE = QuotaEntity("alice")
COLUMNS = "user_name, client_id, quota, value"


@on_loop
async def test_quotas_of_a_user_are_set_shown_and_removed() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        assert (await sql.run("ALTER USER alice SET QUOTA (publish_bytes = '10 MB/s', requests = 100)")).status == "ALTER USER"
        await sql.run("ALTER USER alice SET QUOTA (requests = ?, sql_seconds = 0.5)", ["6000/min"])
        assert sql.broker.quotas.get(ALICE) == {"publish_bytes": 1e7, "requests": 100.0, "sql_seconds": 0.5}
        shown = [("alice", None, "publish_bytes", 1e7), ("alice", None, "requests", 100.0), ("alice", None, "sql_seconds", 0.5)]
        assert await sql.rows("SHOW QUOTAS") == shown
        assert await sql.rows(f"SELECT {COLUMNS} FROM system.quotas ORDER BY quota") == shown
        await sql.run("ALTER USER alice RESET QUOTA (requests)")
        assert set(sql.broker.quotas.get(ALICE)) == {"publish_bytes", "sql_seconds"}
        await sql.run("ALTER USER alice RESET QUOTA")
        assert await sql.rows("SHOW QUOTAS") == []
        assert not sql.broker.quotas.is_on


@on_loop
async def test_quotas_are_for_the_entities_that_kafka_knows() -> None:
    async with running_sql() as sql:
        for on in (
            "USER alice",
            "USER DEFAULT",
            'USER "DEFAULT"',
            "USER alice CLIENT ID 'nightly job'",
            "USER DEFAULT CLIENT ID DEFAULT",
            "CLIENT ID app",
            "CLIENT ID DEFAULT",
        ):
            await sql.run(f"ALTER {on} SET QUOTA (requests = 5)")
        assert {quota.entity for quota in sql.broker.quotas} == {
            ALICE,
            QuotaEntity(DEFAULT),
            QuotaEntity("DEFAULT"),
            QuotaEntity("alice", "nightly job"),
            QuotaEntity(DEFAULT, DEFAULT),
            QuotaEntity(None, "app"),
            QuotaEntity(None, DEFAULT),
        }
        await sql.run("ALTER CLIENT ID app RESET QUOTA; ALTER USER alice CLIENT ID 'nightly job' RESET QUOTA")
        assert sql.broker.quotas.get(ALICE) == {"requests": 5.0}
        assert len(list(sql.broker.quotas)) == 5


@on_loop
async def test_who_uses_more_than_what_sql_has_set_waits() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("ALTER USER DEFAULT SET QUOTA (publish_bytes = '1 KB')")
        assert sql.broker.quotas.charge(Principal("bob"), None, "publish_bytes", 3000) == pytest.approx(2.0)


@on_loop
async def test_quotas_need_alter_configs_and_others_see_their_own() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(
            "CREATE USER alice; CREATE USER operator; CREATE USER chief ROLE admin; GRANT ALTER ON SERVER TO operator"
        )
        await sql.run("ALTER USER alice SET QUOTA (requests = 5); ALTER USER operator SET QUOTA (requests = 6)")
        for statement in (
            "ALTER USER alice SET QUOTA (requests = 500)",
            "ALTER USER alice RESET QUOTA",
            "ALTER CLIENT ID x RESET QUOTA",
        ):
            with acting_as("alice"), pytest.raises(ForbiddenError, match="alter configs"):
                await sql.run(statement)
        for name, seen in (("alice", ["alice"]), ("operator", ["alice", "operator"]), ("chief", ["alice", "operator"])):
            with acting_as(name):
                assert [row[0] for row in await sql.rows("SHOW QUOTAS")] == seen
                assert await sql.rows("SELECT user_name FROM system.quotas ORDER BY 1") == [(one,) for one in seen]
        for name in ("operator", "chief"):
            with acting_as(name):
                await sql.run(f"ALTER USER {name} SET QUOTA (requests = 7)")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("ALTER USER a SET QUOTA (speed = 1)", 25, "there is no quota 'speed'; there are publish_bytes"),
        ("ALTER USER a SET QUOTA (request = 1)", 25, "did you mean 'requests'?"),
        ("ALTER USER a SET QUOTA (requests = 'many')", 36, "'many' is no quota of requests; write it like '100/s'"),
        ("ALTER USER a SET QUOTA (requests = 0)", 36, "a quota is greater than 0. Remove the quota to allow everything"),
        ("ALTER USER a SET QUOTA (requests = NULL)", 36, "must be a number, or a string with a unit"),
        ("ALTER USER a SET QUOTA (requests = -1)", 36, "'-1' is no quota of requests"),
        ("ALTER USER a SET QUOTA (connections = 1.5)", 39, "it must be a whole number"),
        ("ALTER USER a SET QUOTA (requests = 1, requests = 2)", 39, "requests is named twice"),
        ("ALTER USER a SET QUOTA", 23, "expected (, found the end of the statement"),
        ("ALTER USER a SET PASSWORD 'x'", 14, "expected SET QUOTA or RESET QUOTA, found 'SET'"),
        ("ALTER CLIENT ID a SET QUOTA (connections = 1)", 30, "connections are counted for users; leave CLIENT ID out"),
        ("ALTER CLIENT ID a* RESET QUOTA", 17, "a quota is for one client id, or for DEFAULT"),
    ],
)
@on_loop
async def test_errors_say_what_is_wrong_and_where(text: str, column: int, message: str) -> None:
    async with running_sql() as sql:
        with pytest.raises(SqlError) as caught:
            await sql.run(text)
        assert message in str(caught.value)
        assert (caught.value.line, caught.value.column) == (1, column)
        assert not list(sql.broker.quotas)


@on_loop
async def test_a_quota_for_nobody_is_refused() -> None:
    async with running_sql() as sql:
        with pytest.raises(InvalidRequestError):
            await sql.run("ALTER CLIENT ID '' SET QUOTA (requests = 1)")
