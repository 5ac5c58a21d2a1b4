"""The grammar of statements about shadows, and of passwords."""

import pytest

from tailrace.model.errors import SqlError
from tailrace.sql.parse import parse
from tailrace.sql.statements import (
    AlterShadowStatement,
    CreateShadowStatement,
    CreateSourceStatement,
    DropShadowStatement,
    PauseShadowStatement,
    SkipLostStatement,
    Statement,
)

_TO = "CREATE SHADOW prod TO KAFKA 'kafka-1:9092'"


def _created(options: str) -> CreateShadowStatement:
    (found,) = parse(f"{_TO} WITH (topics = 'app.>', {options})")
    assert isinstance(found, CreateShadowStatement)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{_TO} WITH (topics = 'app.>')",
            CreateShadowStatement(text="", name="prod", direction="to", bootstrap="kafka-1:9092", topics=("app.>",)),
        ),
        (
            (
                "create shadow if not exists Old from kafka 'a:1, [::1]:2' with (topics = 'a.*, b ,a.*', groups = 'x-*,y',"
                " user = 'u', password = FILE('/run/p'), throttle = '10 MB', copied_by = 'command',"
                " security.protocol = 'SASL_SSL', \"sasl.mechanism\" = 'PLAIN',"
                " socket.timeout.ms = 500, enable.ssl.certificate.verification = false) dry run"
            ),
            CreateShadowStatement(
                text="",
                name="Old",
                direction="from",
                bootstrap="a:1,[::1]:2",
                topics=("a.*", "b"),
                groups=("x-*", "y"),
                user="u",
                password_file="/run/p",  # noqa: S106
                throttle_bytes=10_000_000,
                copied_by="command",
                settings={
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "PLAIN",
                    "socket.timeout.ms": "500",
                    "enable.ssl.certificate.verification": "false",
                },
                if_not_exists=True,
                is_dry_run=True,
            ),
        ),
        (
            "ALTER SHADOW prod SET (topics = 'b.>', throttle = NULL, password = ENV('P'), bootstrap = 'k:1', client.id = 'me')",
            AlterShadowStatement(
                text="",
                name="prod",
                changes={
                    "topics": ("b.>",),
                    "throttle_bytes": None,
                    "password_env": "P",
                    "bootstrap": "k:1",
                    "settings": {"client.id": "me"},
                },
            ),
        ),
        ("ALTER SHADOW prod PAUSE", PauseShadowStatement(text="", name="prod", is_paused=True)),
        ("ALTER SHADOW prod RESUME", PauseShadowStatement(text="", name="prod", is_paused=False)),
        ("ALTER SHADOW prod SKIP LOST", SkipLostStatement(text="", name="prod")),
        ("DROP SHADOW IF EXISTS prod FORCE", DropShadowStatement(text="", name="prod", if_exists=True, force=True)),
    ],
)
def test_statements_about_shadows(text: str, expected: Statement) -> None:
    (found,) = parse(text)
    assert type(found) is type(expected)
    fields = {name for name in expected.__struct_fields__ if name not in ("text", "line", "column")}
    assert {name: getattr(found, name) for name in fields} == {name: getattr(expected, name) for name in fields}


@pytest.mark.parametrize(
    ("written", "size"),
    [("'10 MB'", 10**7), ("'512KiB/s'", 512 * 1024), ("'1 GB/s'", 10**9), ("20000", 20_000), ("'20000 B'", 20_000)],
)
def test_throttles(written: str, size: int) -> None:
    assert _created(f"throttle = {written}").throttle_bytes == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_TO, r"needs the topics that it copies: WITH \(topics = 'app\.>'\)"),
        (f"{_TO} WITH (groups = 'a')", "needs the topics that it copies"),
        ("CREATE SHADOW prod KAFKA 'k:1'", "expected TO KAFKA or FROM KAFKA, found 'KAFKA'"),
        ("CREATE SHADOW a.b TO KAFKA 'k:1'", r"expected TO KAFKA or FROM KAFKA, found '\.'"),
        ("CREATE SHADOW prod TO KAFKA kafka", "must be in single quotes"),
        (
            "CREATE SHADOW prod TO KAFKA 'kafka-1' WITH (topics = 'a')",
            "must be like 'kafka-1:9092,kafka-2:9092': 'kafka-1'",
        ),
        ("CREATE SHADOW prod TO KAFKA 'a:1,' WITH (topics = 'a')", "'' is not HOST:PORT"),
        ("CREATE SHADOW prod TO KAFKA 'a:99999' WITH (topics = 'a')", "with a port of at most 65535"),
        (f"{_TO} WITH (topics = 'a..b')", "has the part ''"),
        (f"{_TO} WITH (topics = '>.a')", "continues after '>'"),
        (f"{_TO} WITH (topics = 'a', groups = ',')", "'' is no pattern of groups"),
        (f"{_TO} WITH (topics = 'a', throttle = '10')", "it must be bytes in a second"),
        (f"{_TO} WITH (topics = 'a', throttle = 10)", "at least 1000"),
        (f"{_TO} WITH (topics = 'a', throttle = true)", "it must be bytes in a second"),
        (f"{_TO} WITH (topics = 'a', copied_by = 'me')", "it must be 'server' or 'command'"),
        (f"{_TO} WITH (topics = 'a', pasword = 'x')", "no option 'pasword'; did you mean 'password'"),
        (f"{_TO} WITH (topics = 'a', password = 'x')", r"a password in a statement would be stored .* ENV\('NAME'\)"),
        (f"{_TO} WITH (topics = 'a', password_env = 'x', password = FILE('y'))", "a shadow has one password"),
        (f"{_TO} WITH (topics = 'a', sasl.password = 'x')", "would be stored for all to read"),
        (f"{_TO} WITH (topics = 'a', ssl.key.pem = 'x')", "would be stored for all to read"),
        (f"{_TO} WITH (topics = 'a', sasl.oauthbearer.client.secret = 'x')", "would be stored for all to read"),
        (f"{_TO} WITH (topics = 'a', sasl.username = 'x')", "the name of the user has an option of its own"),
        (
            f"{_TO} WITH (topics = 'a', security.protocal = 'x')",
            "did you mean 'security.protocol'",
        ),
        (f"{_TO} WITH (topics = 'a', group.id = 'x')", r"no setting 'group\.id'; use one of security\.protocol"),
        (f"{_TO} WITH (topics = 'a', topics = 'b')", "option 'topics' is set twice"),
        (f"{_TO} WITH (topics = 'a') LATER", "expected DRY RUN"),
        ("ALTER SHADOW prod", "expected SET, PAUSE, RESUME or SKIP LOST"),
        ("ALTER SHADOW prod PAUS", "did you mean 'PAUSE'"),
        ("ALTER SHADOW prod SET (copied_by = 'server')", "can't be altered; use one of bootstrap, topics"),
        ("DROP SHADOW prod CASCADE", "expected FORCE"),
        ("CREATE SHADOWS prod", "CREATE SHADOWS is not supported; expected CREATE .* SHADOW or .*; did you mean 'SHADOW'"),
    ],
)
def test_an_error_says_what_was_expected_and_where(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as refused:
        parse(text)
    assert refused.value.line == 1


def test_no_error_shows_a_password() -> None:
    for written in ("password = 'hunter2'", "sasl.password = 'hunter2'", "password = ENV(hunter2)"):
        with pytest.raises(SqlError) as refused:
            parse(f"{_TO} WITH (topics = 'a', {written})")
        assert written.startswith("password = ENV") or "hunter2" not in str(refused.value)


def test_values_may_be_parameters() -> None:
    text = (
        "CREATE SHADOW prod TO KAFKA :kafka WITH (topics = :topics, groups = :groups, throttle = :limit, password = ENV(:name))"
    )
    (unbound,) = parse(text)
    values = {"kafka": "k:1", "topics": "a.>", "groups": "g", "limit": "1 MB", "name": "P"}
    bound = unbound.build(values)  # type: ignore[attr-defined]
    assert (bound.bootstrap, bound.topics, bound.groups, bound.throttle_bytes) == ("k:1", ("a.>",), ("g",), 10**6)
    assert bound.password_env == "P"  # noqa: S105


@pytest.mark.parametrize(
    ("written", "env", "file"),
    [("password = ENV('P')", "P", None), ("password = FILE('/run/p')", None, "/run/p"), ("password_env = 'P'", "P", None)],
)
def test_sources_name_passwords_in_the_same_way(written: str, env: str | None, file: str | None) -> None:
    (found,) = parse(f"CREATE SOURCE shop FROM POSTGRES 'postgresql://app@db/shop' WITH ({written})")
    assert isinstance(found, CreateSourceStatement)
    assert (found.password_env, found.password_file) == (env, file)
