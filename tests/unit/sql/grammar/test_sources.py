"""The grammar of statements about sources."""

import pytest

from tailrace.model.errors import SqlError
from tailrace.sql.parse import parse
from tailrace.sql.statements import AlterSourceStatement, CreateSourceStatement, DropSourceStatement, Statement

_URL = "postgresql://app@db/shop"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"CREATE SOURCE shop FROM POSTGRES '{_URL}'", CreateSourceStatement(text="", name="shop", url=_URL)),
        (
            (
                f"CREATE SOURCE IF NOT EXISTS shop FROM POSTGRES '{_URL}' WITH (tables = 'public.a, audit.*',"
                " snapshot = 'none', password_env = 'P', captured_by = 'command') DRY RUN"
            ),
            CreateSourceStatement(
                text="",
                name="shop",
                url=_URL,
                tables=("public.a", "audit.*"),
                snapshot="none",
                password_env="P",  # noqa: S106
                captured_by="command",
                if_not_exists=True,
                is_dry_run=True,
            ),
        ),
        (
            "ALTER SOURCE shop SET (tables = 'public.b', password_file = '/run/p')",
            AlterSourceStatement(text="", name="shop", tables=("public.b",), password_file="/run/p"),  # noqa: S106
        ),
        (
            "DROP SOURCE IF EXISTS shop CASCADE FORCE",
            DropSourceStatement(text="", name="shop", if_exists=True, cascade=True, force=True),
        ),
    ],
)
def test_statements_about_sources(text: str, expected: Statement) -> None:
    (found,) = parse(text)
    assert type(found) is type(expected)
    fields = {name for name in expected.__struct_fields__ if name not in ("text", "line", "column")}
    assert {name: getattr(found, name) for name in fields} == {name: getattr(expected, name) for name in fields}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE SOURCE shop FROM POSTGRES 'postgresql://app:secret@db/shop'", "the URL has a password"),
        ("CREATE SOURCE shop FROM POSTGRES 'postgresql://app@db/shop?password=x'", "the URL has a password"),
        ("CREATE SOURCE shop FROM POSTGRES 'mysql://db/shop'", "must be like"),
        ("CREATE SOURCE shop FROM POSTGRES 'postgresql://db'", "with the name of the database"),
        (f"CREATE SOURCE shop FROM POSTGRES '{_URL}' WITH (tables = 'orders')", "write schema.table"),
        (f"CREATE SOURCE shop FROM POSTGRES '{_URL}' WITH (snapshot = 'later')", "it must be 'initial' or 'none'"),
        (f"CREATE SOURCE shop FROM POSTGRES '{_URL}' WITH (slot = 'Bad Name')", "can't be the name of a slot"),
        (f"CREATE SOURCE shop FROM POSTGRES '{_URL}' WITH (speed = 1)", "sources have no option 'speed'"),
        (
            f"CREATE SOURCE shop FROM POSTGRES '{_URL}' WITH (password_env = 'A', password_file = 'B')",
            "a source has one password",
        ),
        ("ALTER SOURCE shop SET (snapshot = 'none')", "can't be altered"),
        ("DROP SOURCE shop NOW", "expected CASCADE, FORCE"),
    ],
)
def test_an_error_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse(text)
