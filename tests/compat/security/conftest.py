"""A server with TLS that demands authentication, whose sessions are short, and processes of clients that log in to it."""

import itertools
from collections.abc import Callable, Iterator

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.kinds import ClientKind
from tests.compat.login import Login
from tests.compat.process import ClientProcess
from tests.integration.security.secured import ADMIN, PASSWORD, SecuredServer, tls_server
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS

SESSION_SECONDS = 3
USER = "alice"
OPEN, CLOSED = "open", "closed.orders"
"""The beginning of the topics of which the user may do everything, and one of which it may do nothing."""


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredServer]:
    session = f"session_seconds = {SESSION_SECONDS}\n"
    with tls_server(tmp_path_factory.mktemp("secured") / "data", authority, session) as server:
        server.sql(f"CREATE TOPIC {CLOSED}")
        server.sql(f"CREATE USER {USER} PASSWORD '{PASSWORD}'")
        for resource in (f"TOPIC PREFIX '{OPEN}.'", f"GROUP PREFIX '{OPEN}.'", f"TRANSACTIONAL ID PREFIX '{OPEN}.'"):
            server.sql(f"GRANT ALL ON {resource} TO {USER}")
        yield server


@pytest.fixture(scope="package")
def logins(secured: SecuredServer, authority: Authority) -> dict[str, Login]:
    """What the user logs in with, by the mechanism, or `certificate`."""
    common = Login(ca=str(authority.file))
    shown = authority.client(USER)
    _, token = secured.create_token(USER)
    with_password = {
        mechanism: msgspec.structs.replace(common, mechanism=mechanism, user=USER, password=PASSWORD)
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    return {
        **with_password,
        "OAUTHBEARER": msgspec.structs.replace(common, mechanism="OAUTHBEARER", token=token),
        "certificate": msgspec.structs.replace(common, certificate=str(shown.certificate), key=str(shown.key)),
    }


@pytest.fixture(scope="package")
def administrator(authority: Authority) -> Login:
    return Login(ca=str(authority.file), mechanism="SCRAM-SHA-512", user=ADMIN, password=PASSWORD)


@pytest.fixture
def no_pauses(secured: SecuredServer, administrator: Login) -> None:
    """Logs in with success, which ends the pauses that earlier failures cause."""
    AdminClient({"bootstrap.servers": secured.process.kafka, **administrator.rdkafka()}).list_topics(timeout=PATIENCE_SECONDS)


StartWith = Callable[[ClientKind, Login], ClientProcess]


@pytest.fixture(scope="module")
def start_with(secured: SecuredServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartWith]:
    """Starts a process of a client that logs in; all are killed at the end."""
    logs = tmp_path_factory.mktemp("clients")
    numbers = itertools.count()
    started: list[ClientProcess] = []

    def start(kind: ClientKind, login: Login) -> ClientProcess:
        log = logs / f"{kind.name}-{next(numbers)}.log"
        started.append(ClientProcess(kind.command(secured.process.kafka), log, login.environment()))
        return started[-1]

    yield start
    for process in started:
        process.kill()
