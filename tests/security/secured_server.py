"""A real server with authentication, and the principals of the policy."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.security import ADMIN_ROLE, Grant, Operation, ResourceKind
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.messages.authentication import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.support.kafka import RawClient
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

ADMINISTRATOR = "administrator"
PASSWORD = "the password of all"  # noqa: S105  of a test
_USERS = ("reader", "stranger", "owner")
_READ: tuple[tuple[Operation, ResourceKind], ...] = (
    ("consume", "topic"),
    ("select", "table"),
    ("consume", "group"),
    ("consume", "queue"),
    ("describe", "source"),
    ("describe", "transactional_id"),
)
_KINDS: tuple[ResourceKind, ...] = ("topic", "table", "group", "queue", "source", "transactional_id")
_SETTINGS = """[security]
authentication = "required"
plain_without_tls = true

[kafka]
client_telemetry = true
"""
_TABLES = "CREATE TABLE acme.bills (id INT PRIMARY KEY, total INT); INSERT INTO acme.bills VALUES (1, 10), (2, 20)"
_addresses = count(2)


class SecuredServer:
    """A server whose users are the principals of the policy."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process

    @property
    def url(self) -> str:
        return self.process.url

    def http(self, principal: str) -> httpx.Client:
        """Return a client that sends what a principal sends."""
        headers = {"authorization": "Bearer tlr_000000000000_wrong"} if principal == "wrong" else {}
        auth = None if principal in ("none", "wrong") else (principal, PASSWORD)
        return httpx.Client(base_url=self.url, headers=headers, auth=auth, timeout=PATIENCE_SECONDS, transport=_transport())

    def kafka(self, principal: str) -> RawClient:
        """Return a connection that has sent what a principal sends. Each has another address, so that none is slowed down for
        the failures of another."""
        client = RawClient(self.process.kafka, source=_address())
        if principal != "none":
            client.ask(SASL_HANDSHAKE_API, SaslHandshakeRequest(mechanism="PLAIN"))
            password = "wrong" if principal == "wrong" else PASSWORD
            name = ADMINISTRATOR if principal == "wrong" else principal
            sent = SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{password}".encode())
            client.ask(SASL_AUTHENTICATE_API, sent)
        return client


@contextmanager
def secured_server(folder: Path) -> Iterator[SecuredServer]:
    """Run a server whose users are the principals of the policy, and that has something of `acme`."""
    asyncio.run(_fill(folder / "data"))
    settings = folder / "tailrace.toml"
    settings.write_text(_SETTINGS)
    with ServerProcess(folder / "data", "--config", str(settings)) as process:
        server = SecuredServer(process)
        with server.http(ADMINISTRATOR) as client:
            client.post("/api/sql", json={"sql": _TABLES}).raise_for_status()
        yield server


async def _fill(folder: Path) -> None:
    store = EmbeddedStore.open(folder)
    broker = Broker(store, SystemClock())
    await broker.start()
    try:
        await broker.users.create(ADMINISTRATOR, PASSWORD, [ADMIN_ROLE])
        for user in _USERS:
            await broker.users.create(user, PASSWORD)
        await broker.grants.add(
            (
                *(_prefixed("reader", operation, kind, "acme") for operation, kind in _READ),
                *(_prefixed("stranger", "all", kind, "other") for kind in _KINDS),
                *(_prefixed("owner", "all", kind, "acme") for kind in _KINDS),
            )
        )
        await broker.topics.create("acme.orders")
        await broker.topics.create("other.orders")
    finally:
        await broker.close()
        store.close()


def _prefixed(principal: str, operation: Operation, kind: ResourceKind, prefix: str) -> Grant:
    return Grant(principal=principal, operation=operation, kind=kind, name=prefix, pattern="prefixed")


def _transport() -> httpx.HTTPTransport:
    return httpx.HTTPTransport(local_address=_address())


def _address() -> str:
    """Return an address of the loopback that no client has had before."""
    number = next(_addresses)
    return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
