"""A server that demands authentication, with an administrator, and users, tokens and clients for tests."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from tailrace.cli.init import make_administrator
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

ADMIN = "root"
PASSWORD = "planted-secret-of-everybody"  # noqa: S105
SETTINGS = '[security]\nauthentication = "required"\n'


class SecuredServer:
    def __init__(self, process: ServerProcess, verify: str | bool) -> None:
        self.process = process
        self._trust: ssl.SSLContext | bool = verify if isinstance(verify, bool) else ssl.create_default_context(cafile=verify)
        self.shown: list[str] = []
        """Tokens that were created: secrets that no output may have."""
        self._users = count(1)

    @property
    def url(self) -> str:
        return self.process.url

    @contextmanager
    def client(self, user: str | None = None, token: str | None = None, **options: Any) -> Iterator[httpx.Client]:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        auth = None if user is None else (user, PASSWORD)
        settings: dict[str, Any] = {"verify": self._trust, "timeout": PATIENCE_SECONDS, **options}
        with httpx.Client(base_url=self.url, auth=auth, headers=headers, **settings) as client:
            yield client

    def sql(self, text: str) -> list[list[Any]]:
        """Run a statement as the administrator."""
        with self.client(ADMIN) as client:
            answer = client.post("/api/sql", json={"sql": text})
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json().get("rows", [])
        return rows

    def create_user(self, *grants: str) -> str:
        """Create a user, and grant it what follows GRANT, such as `CONSUME ON TOPIC a.b`. Return its name."""
        name = f"user_{next(self._users)}"
        self.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
        for grant in grants:
            self.sql(f"GRANT {grant} TO {name}")
        return name

    def create_token(self, user: str, expires: str = "1 day") -> tuple[str, str]:
        """Return the id of a new token, and its text."""
        ((token_id, text, _),) = self.sql(f"CREATE TOKEN FOR {user} EXPIRES '{expires}'")
        self.shown.append(text)
        return token_id, text

    def assert_output_has_no_secret(self) -> None:
        found = self.process.stderr
        assert [secret for secret in (PASSWORD, *self.shown) if secret in found or secret[-20:] in found] == []


@contextmanager
def secured_server(folder: Path, toml: str = SETTINGS, verify: str | bool = True) -> Iterator[SecuredServer]:
    """`verify` is the file of the authority of a server that speaks TLS."""
    make_administrator(folder, ADMIN, PASSWORD, force=False)
    with ServerProcess(folder, toml=toml) as process:
        server = SecuredServer(process, verify)
        yield server
        server.assert_output_has_no_secret()


@contextmanager
def tls_server(folder: Path, authority: Authority, more: str = "") -> Iterator[SecuredServer]:
    """A secured server that speaks TLS and accepts certificates of the authority. `more` are further lines of its section."""
    shown = authority.server()
    toml = (
        f'{SETTINGS}tls_certificate = "{shown.certificate}"\ntls_key = "{shown.key}"\n'
        f'client_certificates = "accepted"\nclient_ca = "{authority.file}"\n{more}'
    )
    with secured_server(folder, toml, verify=str(authority.file)) as server:
        yield server
