"""Statements about users, roles, tokens and grants, and who may run them."""

import re

import pytest

from tailrace.model.clock import Clock
from tailrace.model.errors import (
    AuthenticationError,
    InvalidRequestError,
    SqlError,
    SqlForbiddenError,
    UnacceptableCredentialError,
    UnknownUserError,
    UserExistsError,
)
from tests.support.aio import on_loop
from tests.support.clocks import ManualClock
from tests.support.sql import AUTHENTICATED, SqlClient, acting_as, running_sql


async def grants_of(sql: SqlClient, name: str) -> list[tuple[object, ...]]:
    """Return operation, kind, name and pattern of what is granted to a user or role itself."""
    rows = await sql.rows(f"SHOW GRANTS FOR {name}")
    return sorted((row[1], row[2], row[3], row[4]) for row in rows if row[0] == name)


@on_loop
async def test_a_user_from_its_creation_to_its_end() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        assert (await sql.run("CREATE USER alice PASSWORD 'first'")).status == "CREATE USER"
        assert (await sql.run("CREATE USER IF NOT EXISTS alice PASSWORD 'other'")).status == "CREATE USER, which exists"
        with pytest.raises(UserExistsError, match="a user 'alice' already exists"):
            await sql.run("CREATE USER alice")
        login = await sql.broker.authenticator.by_password("alice", "first", "host")
        assert login.principal.name == "alice"
        await sql.run("ALTER USER alice PASSWORD ?", ["second"])
        with pytest.raises(AuthenticationError):
            await sql.broker.authenticator.by_password("alice", "first", "host")
        assert await sql.broker.authenticator.by_password("alice", "second", "host")
        await sql.run("ALTER USER alice PASSWORD NULL")
        with pytest.raises(AuthenticationError):
            await sql.broker.authenticator.by_password("alice", "second", "host")
        assert (await sql.run("DROP USER alice")).status == "DROP USER"
        assert (await sql.run("DROP USER IF EXISTS alice")).status == "DROP USER, which does not exist"
        with pytest.raises(UnknownUserError, match="there is no user 'alice'"):
            await sql.run("DROP USER alice")
        with pytest.raises(UnacceptableCredentialError, match="the password is empty"):
            await sql.run("CREATE USER bob PASSWORD ''")


@on_loop
async def test_roles_have_members() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE ROLE readers; CREATE ROLE writers; CREATE USER alice ROLE readers; CREATE USER bob")
        await sql.run("GRANT writers, readers TO alice, bob")
        assert await sql.rows("SHOW ROLES") == [
            ("admin", [], []),
            ("readers", [], ["alice", "bob"]),
            ("writers", [], ["alice", "bob"]),
        ]
        await sql.run("REVOKE writers FROM alice; GRANT readers TO writers")
        assert await sql.rows("SHOW USERS") == [("alice", ["readers"], False), ("bob", ["writers", "readers"], False)]
        with pytest.raises(UnknownUserError, match="there is no role 'writer'; did you mean 'writers'"):
            await sql.run("GRANT writer TO alice")
        with pytest.raises(UnknownUserError, match="there is no user or role 'bobb'; did you mean 'bob'"):
            await sql.run("GRANT writers TO bobb")
        with pytest.raises(InvalidRequestError, match="is itself a member"):
            await sql.run("GRANT writers TO readers")
        assert (await sql.run("DROP ROLE readers")).status == "DROP ROLE"
        assert (await sql.run("DROP ROLE IF EXISTS readers")).status == "DROP ROLE, which does not exist"
        assert await sql.rows("SHOW USERS") == [("alice", [], False), ("bob", ["writers"], False)]
        with pytest.raises(InvalidRequestError, match="always there"):
            await sql.run("DROP ROLE admin")


@on_loop
async def test_grants_name_what_there_is() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE app.orders (id int PRIMARY KEY); CREATE VIEW app.few AS SELECT * FROM app.orders LIMIT 1")
        await sql.run("CREATE TOPIC app.paid WITH (alias = 'paid'); CREATE USER alice")
        result = await sql.run("GRANT SELECT, insert ON TABLE APP.Orders, app.few TO alice")
        assert (result.status, result.affected) == ("GRANT", 4)
        assert (await sql.run("GRANT SELECT ON TABLE app.orders TO alice")).affected == 0
        await sql.run("GRANT ALTER ON TOPIC paid TO alice")
        await sql.run("GRANT CONSUME ON GROUP 'not-yet', 'ai-*' TO alice; GRANT CREATE, SELECT ON TABLE app.later TO alice")
        assert await grants_of(sql, "alice") == [
            ("alter", "topic", "app.paid", "literal"),
            ("alter_configs", "topic", "app.paid", "literal"),
            ("consume", "group", "ai-", "prefixed"),
            ("consume", "group", "not-yet", "literal"),
            ("create", "table", "app.later", "literal"),
            ("insert", "table", "app.few", "literal"),
            ("insert", "table", "app.orders", "literal"),
            ("select", "table", "app.few", "literal"),
            ("select", "table", "app.later", "literal"),
            ("select", "table", "app.orders", "literal"),
        ]
        for on, message in {
            "TABLE app.order": "there is no table 'app.order'; did you mean 'app.orders'?",
            "TOPIC app.pad": "there is no topic 'app.pad'; did you mean 'app.paid'?",
            "TOPIC _changes.app.orders": "there is no topic '_changes.app.orders'",
            "SOURCE shop": "there is no source 'shop'",
        }.items():
            with pytest.raises(SqlError, match=re.escape(message)) as caught:
                await sql.run(f"GRANT ALL ON {on} TO alice")
            place = len("GRANT ALL ON ") + on.index(" ") + 2
            assert (caught.value.line, caught.value.column, caught.value.sqlstate) == (1, place, "42704")
        with pytest.raises(UnknownUserError, match="there is no user or role 'alce'; did you mean 'alice'"):
            await sql.run("GRANT SELECT ON TABLE app.orders TO alce")


@on_loop
async def test_revoking_leaves_the_rest_of_all() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY); CREATE USER alice; GRANT ALL, ADMIN ON TABLE t TO alice")
        result = await sql.run("REVOKE DELETE, UPDATE ON TABLE t FROM alice")
        assert (result.status, result.affected) == ("REVOKE", 1)
        left = [row[0] for row in await grants_of(sql, "alice")]
        assert left == ["admin", "alter", "create", "describe", "drop", "insert", "select"]
        await sql.run("REVOKE ADMIN ON TABLE t FROM alice")
        assert "admin" not in [row[0] for row in await grants_of(sql, "alice")]
        assert (await sql.run("REVOKE DELETE ON TABLE t FROM alice")).status == "REVOKE, nothing of it was granted"
        await sql.run("DROP TABLE t; REVOKE ALL ON TABLE t FROM alice")
        assert await grants_of(sql, "alice") == []
        with pytest.raises(UnknownUserError, match="there is no user or role 'bob'"):
            await sql.run("REVOKE ALL ON TABLE t FROM bob")


@on_loop
async def test_revoking_admin_leaves_all() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY); CREATE USER alice; GRANT ALL, ADMIN ON TABLE t TO alice")
        await sql.run("REVOKE ADMIN ON TABLE t FROM alice")
        assert [row[0] for row in await grants_of(sql, "alice")] == ["all"]


@on_loop
async def test_grants_to_everybody_count_for_everybody() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY); GRANT SELECT ON TABLE t TO PUBLIC")
        with acting_as("nobody"):
            assert await sql.rows("SELECT * FROM t") == []
            assert await sql.rows("SHOW GRANTS") == [("PUBLIC", "select", "table", "t", "literal", "*", "allow")]
        await sql.run("REVOKE SELECT ON TABLE t FROM PUBLIC")
        with acting_as("nobody"), pytest.raises(SqlForbiddenError):
            await sql.rows("SELECT * FROM t")


@on_loop
async def test_tokens_are_told_once() -> None:
    clock = ManualClock()
    async with running_sql(security=AUTHENTICATED, clock=clock) as sql:
        await sql.run("CREATE USER alice; CREATE USER bob")
        result = await sql.run("CREATE TOKEN FOR alice EXPIRES '2 days 3 hours' NOTE 'nightly'")
        ((token_id, token, user),) = result.rows
        assert user == "alice"
        assert sql.broker.authenticator.by_token(str(token), "").principal.name == "alice"
        assert result.status == f"CREATE TOKEN {token_id}"
        assert [row[:3] for row in await sql.rows("SHOW TOKENS")] == [(token_id, "alice", "nightly")]
        with acting_as("bob"):
            assert await sql.rows("SHOW TOKENS") == []
            with pytest.raises(SqlForbiddenError, match="'bob' has no token of this id") as of_others:
                await sql.run(f"DROP TOKEN '{token_id}'")
            with pytest.raises(SqlForbiddenError) as of_nobody:
                await sql.run("DROP TOKEN 'unknown'")
            assert str(of_others.value) == str(of_nobody.value)
            with pytest.raises(SqlForbiddenError):
                await sql.run("CREATE TOKEN FOR alice")
            ((own, *_),) = await sql.rows("CREATE TOKEN FOR bob")
            await sql.run(f"DROP TOKEN '{own}'")
        clock.advance(51 * 3_600_000 + 1)
        with pytest.raises(AuthenticationError):
            sql.broker.authenticator.by_token(str(token), "")
        assert (await sql.run(f"DROP TOKEN '{token_id}'")).status == "DROP TOKEN"
        assert await sql.rows("SHOW TOKENS") == []


@pytest.mark.parametrize("expires", ["2000-01-01", "-1 day", "soon", "1 fortnight", "", "infinity", "99999999 years"])
@on_loop
async def test_a_token_expires_later(expires: str) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE USER alice")
        with pytest.raises(SqlError, match=r"would have expired|is no interval"):
            await sql.run("CREATE TOKEN FOR alice EXPIRES ?", [expires])


@pytest.mark.parametrize(
    ("expires", "days"), [("1 month", 30), ("12 hours", 0.5), ("2100-01-01T00:00:00Z", None), ("2100-01-01", None)]
)
@on_loop
async def test_when_a_token_expires_is_an_interval_or_a_time(expires: str, days: float | None) -> None:
    clock: Clock = ManualClock()
    async with running_sql(clock=clock) as sql:
        await sql.run(f"CREATE USER alice; CREATE TOKEN FOR alice EXPIRES '{expires}'")
        (token,) = sql.broker.users.tokens()
        assert token.expires_ms == (4_102_444_800_000 if days is None else clock.now_ms() + round(days * 86_400_000))


ADMINISTRATION = [
    "CREATE USER carol",
    "DROP USER bob",
    "DROP USER IF EXISTS nobody",
    "ALTER USER bob PASSWORD 'x'",
    "ALTER USER nobody PASSWORD 'x'",
    "CREATE ROLE r",
    "DROP ROLE writers",
    "DROP ROLE IF EXISTS nothing",
    "GRANT admin TO alice",
    "GRANT writers TO alice",
    "REVOKE writers FROM bob",
    "CREATE TOKEN FOR bob",
    "CREATE TOKEN FOR nobody",
    "GRANT SELECT ON TABLE t TO alice",
    "GRANT SELECT ON TABLE missing TO alice",
    "GRANT SELECT ON ALL TABLES TO alice",
    "GRANT SELECT ON TABLE t* TO alice",
    "GRANT ADMIN ON SERVER TO alice",
    "GRANT CONSUME ON PATTERN '>' TO alice",
    "REVOKE SELECT ON TABLE t FROM bob",
    "SHOW GRANTS FOR bob",
    "SHOW GRANTS FOR nobody",
]


@on_loop
async def test_only_administrators_administrate() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE t (id int PRIMARY KEY); CREATE USER alice PASSWORD 'a'; CREATE ROLE writers")
        await sql.run("CREATE USER bob ROLE writers; GRANT ALL ON TABLE t TO alice; GRANT ALL ON SERVER TO alice")
        with acting_as("alice"):
            for text in ADMINISTRATION:
                with pytest.raises(SqlForbiddenError) as caught:
                    await sql.run(text)
                assert caught.value.sqlstate == "42501"
            await sql.run("ALTER USER alice PASSWORD 'b'; CREATE TOKEN FOR alice; SHOW GRANTS; SHOW GRANTS FOR alice")
        await sql.run("GRANT admin TO alice")
        with acting_as("alice"):
            await sql.run("CREATE USER carol; GRANT SELECT ON TABLE t TO carol; SHOW GRANTS FOR carol; DROP USER carol")


@on_loop
async def test_who_administrates_a_resource_grants_it() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE TABLE app.t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE TOPIC o")
        await sql.run("CREATE USER alice; CREATE USER bob; CREATE USER carol")
        await sql.run("GRANT ADMIN ON TABLE app.* TO alice; GRANT ADMIN ON TOPIC o TO bob")
        with acting_as("alice"):
            await sql.run("GRANT SELECT, ADMIN ON TABLE app.t TO carol; GRANT SELECT ON TABLE app.x* TO carol")
            await sql.run("REVOKE SELECT ON TABLE app.t FROM carol")
            for refused in ("TABLE u", "TABLE app.t, u", "TABLE a*", "TABLE app*", "ALL TABLES"):
                with pytest.raises(SqlForbiddenError, match="it takes the role admin, or ADMIN on it"):
                    await sql.run(f"GRANT SELECT ON {refused} TO carol")
            with pytest.raises(UnknownUserError, match=r"there is no user or role 'nobody'$"):
                await sql.run("GRANT SELECT ON TABLE app.t TO nobody")
        with acting_as("bob"):
            await sql.run("GRANT CONSUME ON TOPIC o TO carol")
            with pytest.raises(SqlForbiddenError):
                await sql.run("GRANT CONSUME ON PATTERN 'o' TO carol")
        assert await grants_of(sql, "carol") == [
            ("admin", "table", "app.t", "literal"),
            ("consume", "topic", "o", "literal"),
            ("select", "table", "app.x", "prefixed"),
        ]


@on_loop
async def test_without_authentication_everybody_administrates() -> None:
    async with running_sql() as sql:
        with acting_as("ANONYMOUS"):
            await sql.run("CREATE USER alice PASSWORD 'x'; CREATE TABLE t (id int PRIMARY KEY)")
            await sql.run("GRANT SELECT ON TABLE t TO alice; ALTER USER alice PASSWORD 'y'; CREATE TOKEN FOR alice")
            assert len(await sql.rows("SHOW TOKENS")) == 1
            assert await sql.rows("SHOW GRANTS FOR alice") == [("alice", "select", "table", "t", "literal", "*", "allow")]
