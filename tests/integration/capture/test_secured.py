"""Captures at a server with TLS that demands authentication: its own, and `tailrace capture` with a user's credentials."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.security.secured import PASSWORD, SecuredServer, tls_server
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.pipeline import CommandProcess
from tests.support.postgres_server import APP, PASSWORDS, PostgresServer

SECONDS = 60.0
PASSWORD_VARIABLE = "SHOP_PASSWORD"  # noqa: S105


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredServer]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(PASSWORD_VARIABLE, PASSWORDS[APP])
        with tls_server(tmp_path_factory.mktemp("server") / "data", authority) as running:
            yield running


def create(server: SecuredServer, postgres: PostgresServer, name: str, **options: str) -> str:
    """Create a source with a table of one row. Return the name of its database."""
    database = postgres.create_database(name)
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE public.bills (id INT PRIMARY KEY)")
        connection.execute("INSERT INTO public.bills VALUES (1)")
    given = {"tables": "public.*", "password_env": PASSWORD_VARIABLE, **options}
    texts = ", ".join(f"{option} = '{value}'" for option, value in given.items())
    url = f"postgresql://{APP}@127.0.0.1:{postgres.port}/{database}"
    server.sql(f"CREATE SOURCE {name} FROM POSTGRES '{url}' WITH ({texts})")
    return database


def until_captured(server: SecuredServer, name: str, count: int) -> None:
    def rows() -> int:
        if not server.sql(f"SELECT 1 FROM system.source_tables WHERE name = '{name}.public.bills'"):
            return 0
        ((found,),) = server.sql(f"SELECT count(*) FROM {name}.public.bills")
        return int(found)

    eventually(lambda: rows() == count, f"{count} rows of {name}; {server.sql('SELECT * FROM system.sources')}", SECONDS)


def test_a_server_captures_its_sources_itself(server: SecuredServer, postgres: PostgresServer) -> None:
    database = create(server, postgres, "own_shop")
    until_captured(server, "own_shop", 1)
    with postgres.connect(database) as connection:
        connection.execute("INSERT INTO public.bills VALUES (2)")
    until_captured(server, "own_shop", 2)
    server.sql("DROP SOURCE own_shop")


def test_a_command_captures_with_the_credentials_of_its_environment(
    server: SecuredServer, postgres: PostgresServer, authority: Authority, tmp_path: Path
) -> None:
    database = create(server, postgres, "far_shop", captured_by="command")
    user = server.create_user()
    environment = {
        PASSWORD_VARIABLE: PASSWORDS[APP],
        "TAILRACE_SERVER": server.url,
        "TAILRACE_CA_FILE": str(authority.file),
        "TAILRACE_USER": user,
        "TAILRACE_PASSWORD": PASSWORD,
    }
    with CommandProcess(tmp_path / "refused", "capture", "far_shop", environment=environment) as refused:
        assert refused.wait() == 1
        assert f"'{user}' may not" in refused.output
    server.sql(f"GRANT ALTER ON SOURCE far_shop TO {user}")
    with CommandProcess(tmp_path / "granted", "capture", "far_shop", environment=environment) as granted:
        until_captured(server, "far_shop", 1)
        with postgres.connect(database) as connection:
            connection.execute("INSERT INTO public.bills VALUES (2)")
        until_captured(server, "far_shop", 2)
        assert granted.terminate() == 0
        assert PASSWORD not in granted.output
    server.sql("DROP SOURCE far_shop")
