"""Attacks on logins: very many that fail, and attempts to learn from their time who exists."""

import asyncio
import secrets

import pytest

from tailrace.broker.security import authentication, passwords
from tailrace.broker.security.settings import SecuritySettings
from tailrace.kafka.scram import ScramExchange
from tailrace.model.errors import AuthenticationError
from tailrace.model.security import ScramVerifier
from tests.support.aio import on_loop, until
from tests.support.brokers import running_broker
from tests.support.sasl import ScramClient

FAILURES = 10_000
MECHANISM = "SCRAM-SHA-256"
REQUIRED = SecuritySettings(authentication="required")


@on_loop
async def test_ten_thousand_failed_logins_are_all_in_the_audit_and_hinder_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authentication, "_MAX_REMEMBERED", 1_000)
    async with running_broker(security=REQUIRED) as broker:
        await broker.users.create("alice", "secret")
        authenticator = broker.authenticator
        # One proof for all: what it costs an attacker to make others is no concern of the server.
        client = ScramClient("alice", "wrong")
        wrong = b"c=biws,r=%b,p=" + b"A" * 43 + b"="
        for number in range(FAILURES):
            await broker.audit.room()
            exchange = ScramExchange(MECHANISM, authenticator.verifier, secrets.token_urlsafe(8))
            nonce = exchange.first(client.first()).split(b",")[0].removeprefix(b"r=")
            assert exchange.final(wrong % nonce) is None
            authenticator.failure("alice", f"192.0.2.{number % 250}", MECHANISM)
            authenticator.failure("", f"2001:db8::{number:x}", "token")
            if not number % 100:
                await asyncio.sleep(0)
        assert 0 < authenticator.failing_addresses <= 1_000
        assert authenticator.pause_seconds("198.51.100.7") == 0
        assert (await authenticator.by_password("alice", "secret", "198.51.100.7")).principal.name == "alice"
        await until(lambda: broker.audit.waiting == 0)
        assert broker.audit.written + broker.audit.counted >= 2 * FAILURES


@on_loop
async def test_a_name_without_a_user_costs_the_same_work_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[tuple[str, int, int]] = []
    check = passwords.matches

    def noted(verifier: ScramVerifier, password: bytes) -> bool:
        checked.append((verifier.mechanism, verifier.iterations, len(verifier.salt)))
        return check(verifier, password)

    monkeypatch.setattr(passwords, "matches", noted)
    async with running_broker(security=REQUIRED) as broker:
        await broker.users.create("alice", "secret")
        await broker.users.create("without password")
        for name in ("alice", "nobody", "without password"):
            with pytest.raises(AuthenticationError):
                await broker.authenticator.by_password(name, "wrong", f"192.0.2.{len(checked)}")
    assert len(checked) == 3
    assert len(set(checked)) == 1
