"""Passwords and tokens become principals; what fails says nothing about why."""

import asyncio

import pytest

from tailrace.broker.security.passwords import make_verifiers
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import AuthenticationError
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock

HOST = "192.0.2.1"


@on_loop
async def test_everything_that_fails_is_the_same_error() -> None:
    async with running_broker() as broker:
        await broker.users.create("alice", "secret")
        await broker.users.create("nopassword")
        texts = set()
        for number, (name, password) in enumerate(
            (("alice", "wrong"), ("nobody", "secret"), ("nopassword", "secret"), ("alice", ""), ("alice", "x" * 100_000))
        ):
            with pytest.raises(AuthenticationError) as raised:
                await broker.authenticator.by_password(name, password, f"192.0.2.{number}")
            texts.add(str(raised.value))
        with pytest.raises(AuthenticationError) as raised:
            broker.authenticator.by_token("tlr_000_111", HOST)
        assert {*texts, str(raised.value)} == {str(raised.value)}


@on_loop
async def test_a_password_is_remembered_until_it_changes() -> None:
    async with running_broker() as broker:
        await broker.users.create("alice", "secret")

        def is_remembered(password: str) -> bool:
            """Return whether the password is accepted at once, without being hashed in a thread."""
            asked = broker.authenticator.by_password("alice", password, HOST)
            try:
                asked.send(None)
            except StopIteration as accepted:
                assert accepted.value.principal.name == "alice"
                return True
            asked.close()
            return False

        assert not is_remembered("secret")
        await broker.authenticator.by_password("alice", "secret", HOST)
        assert is_remembered("secret")
        assert not is_remembered("wrong")
        await broker.users.set_password("alice", "another")
        assert not is_remembered("secret")
        with pytest.raises(AuthenticationError):
            await broker.authenticator.by_password("alice", "secret", HOST)
        assert (await broker.authenticator.by_password("alice", "another", HOST)).principal.name == "alice"


@on_loop
async def test_a_password_that_changes_while_it_is_checked_counts_no_more() -> None:
    async with running_broker() as broker:
        await broker.users.create("alice", "secret")
        new = make_verifiers(b"another")[0]
        checking = asyncio.ensure_future(broker.authenticator.by_password("alice", "secret", HOST))
        await asyncio.sleep(0)
        await broker.users.set_verifier("alice", new)
        with pytest.raises(AuthenticationError):
            await checking


@on_loop
async def test_a_login_counts_until_its_user_or_token_is_dropped_or_the_token_expires() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.users.create("alice", "secret")
        authenticator = broker.authenticator
        lasting = await broker.users.create_token("alice")
        brief = await broker.users.create_token("alice", expires_ms=clock.now_ms() + 1_000)
        by_password = await authenticator.by_password("alice", "secret", HOST)
        by_lasting, by_brief = authenticator.by_token(lasting.text, HOST), authenticator.by_token(brief.text, HOST)
        assert all(map(authenticator.is_current, (by_password, by_lasting, by_brief)))
        clock.advance(1_000)
        assert not authenticator.is_current(by_brief)
        await broker.users.drop_token(lasting.token.id)
        assert not authenticator.is_current(by_lasting)
        assert authenticator.is_current(by_password)
        await broker.users.drop("alice")
        assert not authenticator.is_current(by_password)


@on_loop
async def test_failed_attempts_of_an_address_wait_longer_and_longer_until_one_succeeds() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        authenticator = broker.authenticator
        failed: list[tuple[str, str, str]] = []
        authenticator.on_failure = lambda *what: failed.append(what)
        pauses = []
        for _ in range(12):
            authenticator.failure("alice", HOST, "password")
            pauses.append(authenticator.pause_seconds(HOST))
        assert pauses[:2] == [0.0, 0.0]
        assert pauses == sorted(pauses)
        assert pauses[-1] == 8.0
        assert authenticator.pause_seconds("192.0.2.2") == 0.0
        assert failed == [("alice", HOST, "password")] * 12
        authenticator.succeeded(HOST)
        assert authenticator.pause_seconds(HOST) == 0.0


@on_loop
async def test_old_failures_are_forgiven() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        for _ in range(9):
            broker.authenticator.failure("alice", HOST, "password")
        assert broker.authenticator.pause_seconds(HOST) > 0
        clock.advance(61_000)
        assert broker.authenticator.pause_seconds(HOST) == 0.0


@on_loop
async def test_a_name_without_a_user_has_a_verifier_that_looks_like_one() -> None:
    async with running_broker() as broker:
        await broker.users.create("alice", "secret")
        user, real = broker.authenticator.verifier("alice", "SCRAM-SHA-512")
        assert user == broker.users.get("alice")
        assert real in broker.users.get("alice").verifiers
        nobody, decoy = broker.authenticator.verifier("bob", "SCRAM-SHA-512")
        assert nobody is None
        assert (decoy.iterations, len(decoy.salt), len(decoy.stored_key)) == (
            real.iterations,
            len(real.salt),
            len(real.stored_key),
        )
        assert broker.authenticator.verifier("bob", "SCRAM-SHA-512")[1].salt == decoy.salt
        assert broker.authenticator.verifier("bob", "SCRAM-SHA-256")[1].salt != decoy.salt


@on_loop
async def test_the_salt_of_a_name_without_a_user_stays_when_the_server_is_started_again() -> None:
    store = MemoryStore(ManualClock())
    salts = set()
    for _ in range(2):
        async with running_broker(store, security=SecuritySettings(authentication="required")) as broker:
            salts.add(broker.authenticator.verifier("bob", "SCRAM-SHA-256")[1].salt)
    assert len(salts) == 1
