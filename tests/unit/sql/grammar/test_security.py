"""The grammar of statements about users, roles, tokens and grants."""

import pickle
import re

import pytest

from tailrace.model.errors import SqlError, SqlSyntaxError
from tailrace.model.quota import QUOTA_KINDS
from tailrace.sql.parse import bind, may_be_kept, parse
from tailrace.sql.statements import (
    AlterQuotaStatement,
    CreateRoleStatement,
    CreateTokenStatement,
    CreateUserStatement,
    DropRoleStatement,
    DropTokenStatement,
    DropUserStatement,
    GrantedResource,
    GrantRoleStatement,
    GrantStatement,
    RevokeRoleStatement,
    RevokeStatement,
    Secret,
    SetPasswordStatement,
    ShowGrantsStatement,
    ShowStatement,
    Statement,
)

PLANTED = "hunter2-planted"


def parsed(text: str) -> Statement:
    (found,) = parse(text)
    return found


def resource(kind: str, name: str, pattern: str = "literal", column: int = 1) -> GrantedResource:
    return GrantedResource(kind, name, pattern, (1, column))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE USER alice", CreateUserStatement(text="CREATE USER", name="alice")),
        (
            "create user if not exists \"a@b.c\" password 'it''s' role writers, \"on-call\", writers;",
            CreateUserStatement(
                text="CREATE USER",
                name="a@b.c",
                password=Secret("it's"),
                roles=("writers", "on-call"),
                if_not_exists=True,
            ),
        ),
        ("CREATE USER alice PASSWORD NULL", CreateUserStatement(text="CREATE USER", name="alice")),
        ("CREATE USER alice.smith ROLE admin", CreateUserStatement(text="CREATE USER", name="alice.smith", roles=("admin",))),
        ("ALTER USER alice PASSWORD 'x'", SetPasswordStatement(text="ALTER USER", name="alice", password=Secret("x"))),
        ("ALTER USER alice PASSWORD NULL", SetPasswordStatement(text="ALTER USER", name="alice", password=None)),
        ("DROP USER IF EXISTS alice", DropUserStatement(text="DROP USER", name="alice", if_exists=True)),
        ("CREATE ROLE writers", CreateRoleStatement(text="CREATE ROLE", name="writers")),
        ("DROP ROLE writers", DropRoleStatement(text="DROP ROLE", name="writers")),
        ("DROP ROLE IF EXISTS writers", DropRoleStatement(text="DROP ROLE", name="writers", if_exists=True)),
        ("GRANT admin TO alice", GrantRoleStatement(text="GRANT", roles=("admin",), members=("alice",))),
        ("GRANT a, b TO c, d", GrantRoleStatement(text="GRANT", roles=("a", "b"), members=("c", "d"))),
        ("REVOKE a FROM c", RevokeRoleStatement(text="REVOKE", roles=("a",), members=("c",))),
        ("CREATE TOKEN FOR alice", CreateTokenStatement(text="CREATE TOKEN", user="alice")),
        (
            "CREATE TOKEN FOR alice EXPIRES '30 days' NOTE 'the nightly job'",
            CreateTokenStatement(text="CREATE TOKEN", user="alice", expires="30 days", note="the nightly job"),
        ),
        ("DROP TOKEN 'abc'", DropTokenStatement(text="DROP TOKEN", token_id="abc")),  # noqa: S106
        ("SHOW GRANTS", ShowGrantsStatement(text="SHOW GRANTS")),
        ("SHOW GRANTS FOR alice", ShowGrantsStatement(text="SHOW GRANTS", principal="alice")),
        ("SHOW GRANTS FOR PUBLIC", ShowGrantsStatement(text="SHOW GRANTS", principal="*")),
        (
            "ALTER USER alice SET QUOTA (publish_bytes = '10 MB/s', REQUESTS = 100, sql_seconds = 0.5)",
            AlterQuotaStatement(
                text="ALTER USER", user="alice", quotas=(("publish_bytes", 1e7), ("requests", 100.0), ("sql_seconds", 0.5))
            ),
        ),
        (
            "ALTER USER DEFAULT SET QUOTA (connections = 5)",
            AlterQuotaStatement(text="ALTER USER", user="<default>", quotas=(("connections", 5.0),)),
        ),
        (
            'ALTER USER "DEFAULT" SET QUOTA (connections = 5)',
            AlterQuotaStatement(text="ALTER USER", user="DEFAULT", quotas=(("connections", 5.0),)),
        ),
        (
            "ALTER USER alice CLIENT ID 'nightly job' SET QUOTA (requests = '600/min')",
            AlterQuotaStatement(text="ALTER USER", user="alice", client_id="nightly job", quotas=(("requests", 10.0),)),
        ),
        (
            "ALTER CLIENT ID DEFAULT RESET QUOTA (requests, consume_bytes)",
            AlterQuotaStatement(
                text="ALTER CLIENT ID", client_id="<default>", quotas=(("requests", None), ("consume_bytes", None))
            ),
        ),
        (
            "ALTER USER alice RESET QUOTA",
            AlterQuotaStatement(text="ALTER USER", user="alice", quotas=tuple((kind, None) for kind in QUOTA_KINDS)),
        ),
        (
            "ALTER CLIENT ID 'DEFAULT' RESET QUOTA",
            AlterQuotaStatement(
                text="ALTER CLIENT ID",
                client_id="DEFAULT",
                quotas=(("publish_bytes", None), ("consume_bytes", None), ("requests", None), ("sql_seconds", None)),
            ),
        ),
        (
            "ALTER USER default PASSWORD NULL",
            SetPasswordStatement(text="ALTER USER", name="default", password=None),
        ),
        ("SHOW QUOTAS", ShowStatement(text="SHOW QUOTAS", what="quotas")),
        ("SHOW USERS", ShowStatement(text="SHOW USERS", what="users")),
        ("SHOW ROLES", ShowStatement(text="SHOW ROLES", what="roles")),
        ("SHOW TOKENS", ShowStatement(text="SHOW TOKENS", what="tokens")),
    ],
)
def test_statements_are_read(text: str, expected: Statement) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("TABLE app.t", [resource("table", "app.t", column=20)]),
        ('TABLE app.t, "App".u', [resource("table", "app.t", column=20), resource("table", "App.u", column=27)]),
        ("TABLE app.*", [resource("table", "app.", "prefixed", 20)]),
        ("TABLE app.ord*", [resource("table", "app.ord", "prefixed", 20)]),
        ("TABLE PREFIX 'app.x'", [resource("table", "app.x", "prefixed", 20)]),
        ("GROUP 'ai-*'", [resource("group", "ai-", "prefixed", 20)]),
        ("GROUP 'ai-1'", [resource("group", "ai-1", column=20)]),
        ("QUEUE work", [resource("queue", "work", column=20)]),
        ("SOURCE shop", [resource("source", "shop", column=21)]),
        ("TRANSACTIONAL ID 'tx'", [resource("transactional_id", "tx", column=31)]),
        ("TOPIC app.o", [resource("topic", "app.o", column=20)]),
        ("TOPIC PREFIX 'app.'", [resource("topic", "app.", "prefixed", 20)]),
        ("PATTERN 'app.>'", [resource("topic", "app.>", "pattern", 22)]),
        ("PATTERN 'a.*', 'b.>'", [resource("topic", "a.*", "pattern", 22), resource("topic", "b.>", "pattern", 29)]),
        ("ALL TOPICS", [resource("topic", "*", column=14)]),
        ("ALL TABLES", [resource("table", "*", column=14)]),
        ("ALL GROUPS", [resource("group", "*", column=14)]),
        ("ALL QUEUES", [resource("queue", "*", column=14)]),
        ("ALL SOURCES", [resource("source", "*", column=14)]),
        ("ALL TRANSACTIONAL IDS", [resource("transactional_id", "*", column=14)]),
        ("SERVER", [resource("cluster", "kafka-cluster", column=14)]),
    ],
)
def test_what_is_granted_on_is_read(on: str, expected: list[GrantedResource]) -> None:
    found = parsed(f"GRANT ALL ON {on} TO alice")
    assert found == GrantStatement(text="GRANT", operations=("all",), resources=tuple(expected), principals=("alice",))
    taken = parsed(f"REVOKE ALL ON {on} FROM alice")
    assert isinstance(taken, RevokeStatement)
    assert [one[:3] for one in taken.resources] == [one[:3] for one in expected]


@pytest.mark.parametrize(
    ("operations", "on", "expected"),
    [
        ("SELECT, insert, UPDATE, DELETE", "TABLE t", ("select", "insert", "update", "delete")),
        ("CONSUME, PUBLISH", "TOPIC o", ("consume", "publish")),
        ("ALTER", "TABLE t", ("alter",)),
        ("ALTER", "TOPIC o", ("alter", "alter_configs")),
        ("ALTER, CREATE", "SERVER", ("alter", "alter_configs", "create")),
        ("DROP, DESCRIBE", "GROUP g", ("drop", "describe")),
        ("ALL PRIVILEGES", "QUEUE q", ("all",)),
        ("ADMIN", "SOURCE s", ("admin",)),
    ],
)
def test_operations_are_read(operations: str, on: str, expected: tuple[str, ...]) -> None:
    found = parsed(f"GRANT {operations} ON {on} TO alice, PUBLIC")
    assert isinstance(found, GrantStatement)
    assert (found.operations, found.principals) == (expected, ("alice", "*"))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("CREATE USER", 12, "expected the name of a user, found the end of the statement"),
        ("CREATE USER a ROLE", 19, "expected the name of a role"),
        ("CREATE USER a ROLE b PASSWORD 'x'", 22, "expected the end of the statement, found something else"),
        ("ALTER USER a", 13, "expected PASSWORD, SET QUOTA, RESET QUOTA or CLIENT ID, found the end of the statement"),
        ("ALTER USER a PASSWORD", 22, "expected the password in single quotes, a parameter, or NULL"),
        ("DROP USER a b", 13, "expected the end of the statement, found 'b'"),
        ("CREATE ROLE 'a'", 13, "expected the name of a role, found"),
        ("CREATE TOKEN alice", 1, "expected CREATE TOKEN FOR"),
        ("CREATE TOKEN FOR alice EXPIRE '1 day'", 24, "expected EXPIRES, NOTE or the end of the statement, found 'EXPIRE'"),
        ("CREATE TOKEN FOR alice EXPIRES tomorrow", 32, "must be in single quotes: 'tomorrow'"),
        ("DROP TOKEN abc", 12, "the id of the token must be in single quotes"),
        ("GRANT SELECT TO alice", 7, "SELECT is not granted without its object"),
        ("GRANT writers alice", 15, "expected a comma or TO, found 'alice'"),
        ("GRANT SELEC ON TABLE t TO a", 7, "did you mean 'SELECT'"),
        ("GRANT SELECT ON TOPIC t TO a", 7, "SELECT can't be granted on a TOPIC; use PUBLISH, CONSUME, CREATE"),
        ("GRANT INSERT, CONSUME ON TABLE t TO a", 15, "CONSUME can't be granted on a TABLE; use SELECT, INSERT"),
        ("GRANT DROP ON SERVER TO a", 7, "DROP can't be granted on the SERVER; use CREATE, ALTER, DESCRIBE, ADMIN, ALL"),
        ("GRANT SELECT ON t TO a", 17, "expected TOPIC, TABLE, GROUP"),
        ("GRANT CONSUME ON TOPIC app.* TO a", 24, "ON PATTERN 'app.>' or ON PATTERN 'app.*'"),
        ("GRANT CONSUME ON TOPIC app* TO a", 24, "ON TOPIC PREFIX 'app'"),
        ("GRANT SELECT ON TABLE '*' TO a", 23, "write ON ALL TABLES"),
        ("GRANT SELECT ON TABLE PREFIX '' TO a", 23, "write ON ALL TABLES"),
        ("GRANT CONSUME ON PATTERN 'a.>.b' TO a", 26, "continues after '>'"),
        ("GRANT CONSUME ON PATTERN app TO a", 26, "must be in single quotes"),
        ("GRANT SELECT ON TABLE t", 24, "expected TO, found the end of the statement"),
        ("GRANT SELECT ON TABLE t TO", 27, "expected the name of a user or role"),
        ("GRANT SELECT ON TABLE t TO a b", 30, "expected a comma or the end of the statement"),
        ("REVOKE SELECT ON TABLE t TO a", 26, "expected FROM, found 'TO'"),
        ("REVOKE a TO b", 10, "expected a comma or FROM, found 'TO'"),
        ("SHOW GRANTS alice", 13, "expected FOR or the end of the statement"),
        ("SHOW GRANT", 6, "did you mean 'GRANTS'"),
        ("CREATE USERS a", 8, "did you mean 'USER'"),
        ('CREATE USER "Public"', 13, "PUBLIC stands for everybody, and can't be the name of a user"),
        ("CREATE ROLE public", 13, "PUBLIC stands for everybody, and can't be the name of a role"),
    ],
)
def test_errors_point_at_the_place(text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize("verb", ["CREATE USER a", "ALTER USER a"])
@pytest.mark.parametrize(
    "rest",
    [
        f"'{PLANTED}'",
        f"PASSWORT '{PLANTED}'",
        f"PASSWORD '{PLANTED}' '{PLANTED}'",
        f'PASSWORD "{PLANTED}"',
        f"PASSWORD E'{PLANTED}'",
        f"PASSWORD ('{PLANTED}')",
        f"PASSWORD = '{PLANTED}'",
        f"PASSWORD TRUE '{PLANTED}'",
        f"PASSWORD '{PLANTED}",
        f"'{PLANTED}' PASSWORD",
        f"WITH PASSWORD '{PLANTED}'",
    ],
)
def test_errors_do_not_quote_passwords(verb: str, rest: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(f"{verb} {rest}")
    assert caught.value.line == 1
    shown = [caught.value, caught.value.__cause__, caught.value.__context__]
    assert PLANTED not in " ".join(f"{one} {one!r}" for one in shown)


@pytest.mark.parametrize("password", ["12345678901234567890123", "-5", "77777"])
def test_numbers_are_no_passwords_and_are_not_quoted(password: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(f"ALTER USER a PASSWORD {password}")
    assert password not in str(caught.value)


@pytest.mark.parametrize("sign", ["?", "$1", ":secret"])
def test_passwords_are_parameters(sign: str) -> None:
    statement = parsed(f"CREATE USER alice PASSWORD {sign}")
    assert not may_be_kept(statement)
    (name,) = statement.parameters
    bound = bind(statement, {name: PLANTED})
    assert bound == CreateUserStatement(text="CREATE USER", name="alice", password=Secret(PLANTED))
    with pytest.raises(SqlError, match="the password must be a string") as caught:
        bind(statement, {name: [PLANTED]})
    assert PLANTED not in str(caught.value)


def test_statements_do_not_show_their_passwords() -> None:
    statement = parsed(f"SELECT 1; CREATE USER alice PASSWORD '{PLANTED}'".partition("; ")[2])
    assert PLANTED not in f"{statement} {statement!r} {statement.text}"
    assert pickle.loads(pickle.dumps(statement)) == statement  # noqa: S301


def test_only_statements_without_secrets_are_kept() -> None:
    kept = parse("SELECT 1; CREATE TOPIC a; SHOW USERS")
    assert all(map(may_be_kept, kept))
    assert not any(map(may_be_kept, parse("CREATE USER a PASSWORD 'x'; ALTER USER a PASSWORD ?; GRANT a TO b; DROP TOKEN 'x'")))


def test_users_and_roles_are_no_keywords_elsewhere() -> None:
    assert parse('CREATE TOPIC "user"; SELECT "user", token FROM role')
    with pytest.raises(SqlSyntaxError):
        parse("CREATE USER a; CREATE")
