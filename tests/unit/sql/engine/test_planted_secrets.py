"""Passwords and tokens that go through SQL are found nowhere afterwards."""

import gc
import logging
import traceback

import pytest

from tailrace.model.errors import TailraceError
from tailrace.sql.parameters import Parameters
from tests.support.aio import on_loop
from tests.support.sql import AUTHENTICATED, SqlClient, running_sql

PLANTED = "-".join(("planted", "hunter", "2"))
"""Joined here, so that the constants of this module do not have it."""

GOOD: list[tuple[str, Parameters]] = [
    ("CREATE USER alice PASSWORD '{}'", ()),
    ("ALTER USER alice PASSWORD '{}'", ()),
    ("SELECT 1; ALTER USER alice PASSWORD '{}'; SELECT 2", ()),
    ("ALTER USER alice PASSWORD ?", (PLANTED,)),
    ("ALTER USER alice PASSWORD $1", (PLANTED,)),
    ("CREATE USER bob PASSWORD '{}' -- " + "x" * 2_000, ()),
]
BAD: list[tuple[str, Parameters]] = [
    ("CREATE USER alice PASSWORD '{}'", ()),
    ("CREATE USER carol PASSWORD '{}' ROLE missing", ()),
    ("CREATE USER \"x:y\" PASSWORD '{}'", ()),
    ("ALTER USER nobody PASSWORD '{}'", ()),
    ("ALTER USER alice PASSWORD '{}' '{}'", ()),
    ("ALTER USER alice PASWORD '{}'", ()),
    ('ALTER USER alice PASSWORD "{}"', ()),
    ("ALTER USER alice PASSWORD '{}', '{}'", ()),
    ("ALTER USER alice PASSWORD ?", ([PLANTED],)),
    ("ALTER USER alice PASSWORD ?", ()),
    ("ALTER USER alice PASSWORD :p", {"q": PLANTED}),
    ("SELECT 1; ALTER USER nobody PASSWORD '{}'; SELECT 2", ()),
    ("BEGIN; ALTER USER alice PASSWORD '{}'; COMMIT", ()),
    ("EXPLAIN ALTER USER alice PASSWORD '{}'", ()),
    ("ALTER USER alice PASSWORD '{}'; SELECT * FROM missing", ()),
    ("ALTER USER alice PASSWORD '{}' -- " + "x" * 2_000 + "\n;;SELEC", ()),
]


def shown(error: BaseException) -> str:
    """Return everything that a log could show of an error."""
    chain: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in chain:
            chain.append(one)
            waiting += [one.__cause__, one.__context__]
    return " ".join([f"{one!r} {one} {vars(one)}" for one in chain] + traceback.format_exception(error))


@on_loop
async def test_passwords_are_not_in_logs_errors_and_system_tables(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_sql(security=AUTHENTICATED) as sql:
        for text, params in GOOD:
            await sql.run(text.format(PLANTED), params)
        login = await sql.broker.authenticator.by_password("alice", PLANTED, "")
        assert login.principal.name == "alice"
        for text, params in BAD:
            with pytest.raises(TailraceError) as caught:
                await sql.run(text.format(PLANTED, PLANTED), params)
            assert PLANTED not in shown(caught.value), text
        assert PLANTED not in caplog.text
        verifier = sql.broker.users.get("alice").verifiers[0]
        for table in await system_tables(sql):
            told = repr(await sql.rows(f"SELECT * FROM {table}"))
            assert PLANTED not in told, table
            for secret in (verifier.stored_key, verifier.server_key, verifier.salt):
                assert secret.hex() not in told
                assert repr(secret)[2:-1] not in told, table
        for what in ("USERS", "ROLES", "TOKENS", "GRANTS"):
            assert PLANTED not in repr(await sql.run(f"SHOW {what}"))


@on_loop
async def test_texts_with_passwords_are_not_kept_in_memory() -> None:
    async with running_sql() as sql:
        for text, params in GOOD:
            await sql.run(text.format(PLANTED), params)
        gc.collect()
        kept = [
            one
            for one in gc.get_objects()
            if isinstance(one, dict) and any(isinstance(key, str) and PLANTED in key for key in list(one))
        ]
        assert kept == []
        statements = [
            one for one in gc.get_objects() if type(one).__module__ == "tailrace.sql.statements" and PLANTED in _texts_of(one)
        ]
        assert statements == []


@on_loop
async def test_a_token_is_in_no_table(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE USER alice")
        ((_, token, _),) = await sql.rows("CREATE TOKEN FOR alice NOTE 'n'")
        secret = str(token).split("_", 2)[2]
        (stored,) = sql.broker.users.tokens()
        for table in await system_tables(sql):
            told = repr(await sql.rows(f"SELECT * FROM {table}"))
            assert secret not in told
            assert stored.digest.hex() not in told
        assert secret not in caplog.text


async def system_tables(sql: SqlClient) -> list[str]:
    with pytest.raises(TailraceError) as caught:
        await sql.run("SELECT * FROM system.nothing")
    return [name.strip(" .") for name in str(caught.value).rpartition("; use ")[2].split(",")]


def _texts_of(one: object) -> str:
    return " ".join(str(getattr(one, field, "")) for field in ("text", "value", "postgres_text"))
