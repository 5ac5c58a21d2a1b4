"""Processes of the server log in as the server, and nobody else does."""

import hashlib
import hmac

import pytest

from tailrace.broker.security.authentication import Authenticator
from tailrace.model.errors import AuthenticationError
from tailrace.model.security import SERVER
from tests.support.aio import on_loop
from tests.support.brokers import running_broker

HOST = "127.0.0.1"


@on_loop
async def test_the_secret_is_a_token_and_a_password_of_the_server() -> None:
    async with running_broker() as broker:
        authenticator = broker.authenticator
        for login in (
            authenticator.by_token(authenticator.server_secret, HOST),
            await authenticator.by_password(SERVER.name, authenticator.server_secret, HOST),
        ):
            assert login.principal.is_server
            assert login.principal.host == HOST
            assert authenticator.is_current(login)


@on_loop
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_secret_is_a_password_for_scram(mechanism: str) -> None:
    async with running_broker() as broker:
        user, verifier = broker.authenticator.verifier(SERVER.name, mechanism)
        assert user is not None
        name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        secret = broker.authenticator.server_secret.encode()
        salted = hashlib.pbkdf2_hmac(name, secret, verifier.salt, verifier.iterations)
        assert hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest() == verifier.stored_key
        assert broker.authenticator.by_verifier(user, HOST).principal.is_server


async def refused(authenticator: Authenticator, name: str, password: str) -> bool:
    try:
        await authenticator.by_password(name, password, HOST)
    except AuthenticationError:
        return True
    return False


@on_loop
async def test_what_is_not_the_secret_of_this_run_is_refused() -> None:
    async with running_broker() as first, running_broker() as second:
        await first.users.create("alice", "secret")
        authenticator, other = first.authenticator, second.authenticator.server_secret
        assert await refused(authenticator, SERVER.name, other)
        assert await refused(authenticator, SERVER.name, "")
        assert await refused(authenticator, "alice", authenticator.server_secret)
        for token in (other, "", "tlr_server_", authenticator.server_secret[:-1], f"{authenticator.server_secret}x", "\ud800"):
            with pytest.raises(AuthenticationError):
                authenticator.by_token(token, HOST)


@on_loop
async def test_a_certificate_for_the_name_of_the_server_is_not_the_server() -> None:
    async with running_broker() as broker:
        assert not broker.authenticator.by_certificate(SERVER.name, HOST).principal.is_server
