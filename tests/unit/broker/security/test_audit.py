"""The audit has every login, every denial and every change of rights, and no secret; and it costs what it may cost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.security.authentication import Login
from tailrace.broker.security.passwords import verifier_of
from tailrace.broker.security.principals import act_as, come_by
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import AuthenticationError, ForbiddenError, OverloadedError, ReservedTopicError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.quota import QuotaEntity
from tailrace.model.record import Message
from tailrace.model.security import ADMIN_ROLE, AUDIT_TOPIC, SERVER, Grant, Principal
from tailrace.store.contract import Store
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, options, running_broker, values_in
from tests.support.clocks import ManualClock

ALICE = Principal("alice", "192.0.2.7")
REQUIRED = SecuritySettings(authentication="required")


@asynccontextmanager
async def audited(
    store: Store | None = None,
    limits: Limits = DEFAULT_LIMITS,
    security: SecuritySettings = REQUIRED,
    clock: ManualClock | None = None,
) -> AsyncIterator[Broker]:
    async with running_broker(store, clock, limits, security=security) as broker:
        try:
            yield broker
        finally:
            act_as(SERVER)


async def recorded(broker: Broker) -> list[dict[str, Any]]:
    """Return what is in the topic when everything that waits is written."""
    await until(lambda: broker.audit.waiting == 0)
    before = act_as(SERVER)
    found = [json.loads(value or b"") for value in await values_in(broker, AUDIT_TOPIC)]
    act_as(before.old_value if isinstance(before.old_value, Principal) else SERVER)
    return found


def told(record: dict[str, Any]) -> tuple[str, ...]:
    return tuple(record[name] for name in ("principal", "what", "resource", "outcome", "reason"))


@on_loop
async def test_logins_are_recorded_and_failed_ones_too() -> None:
    async with audited() as broker:
        await broker.users.create("alice", "a secret of alice")
        come_by("kafka")
        login = await broker.authenticator.by_password("alice", "a secret of alice", ALICE.host)
        broker.audit.logged_in(login, "PLAIN")
        for name, password in (("alice", "a wrong secret"), ("mallory", "a guessed secret")):
            with pytest.raises(AuthenticationError):
                await broker.authenticator.by_password(name, password, ALICE.host)
        records = await recorded(broker)
        assert [told(one) for one in records[1:]] == [
            ("alice", "login", "", "allowed", "PLAIN"),
            ("alice", "login", "", "denied", "password"),
            ("mallory", "login", "", "denied", "password"),
        ]
        assert {(one["host"], one["surface"], one["time"], one["count"]) for one in records[1:]} == {
            (ALICE.host, "kafka", "2023-11-14T22:13:20.000Z", 1)
        }
        assert "secret" not in json.dumps(records)


@on_loop
async def test_denials_are_recorded_with_what_was_denied() -> None:
    async with audited() as broker:
        act_as(ALICE)
        for ask in (
            lambda: broker.permissions.require("consume", "topic", "orders"),
            lambda: broker.topics.require("publish", "orders"),
            lambda: broker.permissions.require("alter", "cluster"),
            broker.permissions.require_admin,
        ):
            with pytest.raises(ForbiddenError):
                ask()
        broker.permissions.may("consume", "topic", "orders")
        assert [
            (one["principal"], one["host"], one["what"], one["resource"], one["outcome"]) for one in await recorded(broker)
        ] == [
            ("alice", ALICE.host, "consume", "topic orders", "denied"),
            ("alice", ALICE.host, "publish", "topic orders", "denied"),
            ("alice", ALICE.host, "alter", "cluster", "denied"),
            ("alice", ALICE.host, "administer", "", "denied"),
        ]


@on_loop
async def test_every_change_of_rights_is_recorded_with_who_made_it_and_without_secrets() -> None:
    async with audited() as broker:
        act_as(Principal("root", "192.0.2.1", (ADMIN_ROLE,)))
        users, grants = broker.users, broker.grants
        await users.create("bob", "secret-1")
        await users.set_password("bob", "secret-2")
        await users.set_verifier("bob", verifier_of("SCRAM-SHA-256", b"s" * 32, b"salt", 4096))
        await users.remove_verifier("bob", "SCRAM-SHA-256")
        await users.create_role("readers")
        await users.grant_role("readers", "bob")
        await users.revoke_role("readers", "bob")
        made = await users.create_token("bob")
        await users.drop_token(made.token.id)
        await grants.add([Grant(principal="bob", operation="consume", kind="topic", name="orders.", pattern="prefixed")])
        await grants.add([Grant(principal="bob", operation="consume", kind="topic", name="orders.", pattern="prefixed")])
        await grants.remove(lambda one: one.principal == "bob")
        await broker.quotas.alter(QuotaEntity("bob"), {"requests": 5.0})
        await users.drop_role("readers")
        await users.drop("bob")
        records = await recorded(broker)
        assert [(one["what"], one["resource"]) for one in records] == [
            ("create user", "bob"),
            ("set password", "bob"),
            ("set password", "bob"),
            ("remove password", "bob"),
            ("create role", "readers"),
            ("grant role readers", "bob"),
            ("revoke role readers", "bob"),
            ("create token", f"{made.token.id} of bob"),
            ("drop token", f"{made.token.id} of bob"),
            ("grant", "allow bob consume on topic prefixed orders."),
            ("revoke", "allow bob consume on topic prefixed orders."),
            ("alter quota", "user 'bob': requests 5"),
            ("drop role", "readers"),
            ("drop user", "bob"),
        ]
        assert {(one["principal"], one["host"], one["outcome"]) for one in records} == {("root", "192.0.2.1", "allowed")}
        written = json.dumps(records)
        assert "secret" not in written
        assert made.text not in written
        assert made.text.rpartition("_")[2] not in written


@on_loop
async def test_clients_that_show_who_they_are_with_each_request_are_recorded_once_an_hour() -> None:
    clock = ManualClock()
    async with audited(clock=clock) as broker:
        for _ in range(100):
            broker.audit.logged_in(Login(ALICE), "token", each_request=True)
        broker.audit.logged_in(Login(ALICE, 0, "7"), "token", each_request=True)
        broker.audit.logged_in(Login(Principal("alice", "192.0.2.8")), "token", each_request=True)
        assert len(await recorded(broker)) == 3
        clock.advance(3_600_000)
        broker.audit.logged_in(Login(ALICE), "token", each_request=True)
        assert len(await recorded(broker)) == 4


@on_loop
async def test_when_too_many_wait_denials_are_counted_and_logins_wait_and_none_is_lost() -> None:
    limits = Limits(audit_records=10, publish_wait_ms=50)
    store = GatedStore(limits=limits)
    async with audited(store, limits) as broker:
        audit = broker.audit
        store.close_gate()
        for number in range(10):
            await audit.room()
            audit.logged_in(Login(Principal(f"user-{number}")), "PLAIN")
        with pytest.raises(OverloadedError, match="audit_records"):
            await audit.room()
        for _ in range(500):
            audit.denied(ALICE, "consume", "topic orders")
        audit.denied(ALICE, "publish", "topic orders")
        for number in range(3000):
            audit.denied(ALICE, "consume", f"topic t{number}")
        assert audit.waiting <= 10 + 1001
        waiting = asyncio.create_task(audit.room())
        store.open_gate()
        await waiting
        audit.logged_in(Login(Principal("late")), "PLAIN")
        records = await recorded(broker)
        logins = [one["principal"] for one in records if one["what"] == "login"]
        assert logins == [*(f"user-{number}" for number in range(10)), "late"]
        counts = {(one["what"], one["resource"]): one["count"] for one in records if one["outcome"] == "denied"}
        assert counts["consume", "topic orders"] == 500
        assert counts["publish", "topic orders"] == 1
        assert sum(counts.values()) == 3501
        assert counts["others", ""] == 3000 - 998
        assert audit.counted == 3501


@on_loop
async def test_records_wait_while_the_disk_is_full_and_are_written_when_it_is_not() -> None:
    store = GatedStore()
    async with audited(store) as broker:
        store.close_gate()
        broker.audit.logged_in(Login(ALICE), "PLAIN")
        await until(lambda: bool(store.in_flight))
        store.fail()
        await until(lambda: broker.audit.failures == 1)
        store.open_gate()
        assert [told(one)[:2] for one in await recorded(broker)] == [("alice", "login")]


@on_loop
async def test_what_waits_at_a_stop_is_written() -> None:
    store = GatedStore()
    async with audited(store) as broker:
        broker.audit.logged_in(Login(ALICE), "PLAIN")
    async with audited(store) as broker:
        assert [told(one)[:2] for one in await recorded(broker)] == [("alice", "login")]


@on_loop
async def test_long_names_are_cut_and_tokens_that_are_sent_as_names_are_not_shown() -> None:
    async with audited() as broker:
        broker.audit.login_failed("n" * 10_000, "h", "password")
        broker.audit.login_failed("tlr_0123_secret", "h", "password")
        broker.audit.login_failed("eyJsecret", "h", "password")
        broker.audit.login_failed("\ud800", "h", "password")
        assert [one["principal"] for one in await recorded(broker)] == ["n" * 300 + "...", "(a token)", "(a token)", "?"]


@on_loop
async def test_only_the_server_writes_the_topic_and_its_retention_is_that_of_the_settings() -> None:
    store = GatedStore()
    async with audited(store) as broker:
        assert broker.topics.get(AUDIT_TOPIC).topic.settings.retention_seconds == 30 * 24 * 3600
        with pytest.raises(ReservedTopicError):
            await broker.publisher.publish([Message(AUDIT_TOPIC, b"{}")])
        with pytest.raises(ReservedTopicError):
            await broker.topics.delete(AUDIT_TOPIC)
        with pytest.raises(ReservedTopicError):
            await broker.topics.alter(AUDIT_TOPIC, options(cleanup_policy="compact"))
    async with audited(store, security=SecuritySettings(authentication="required", audit_retention_seconds=60)) as broker:
        assert broker.topics.get(AUDIT_TOPIC).topic.settings.retention_seconds == 60


@on_loop
async def test_nothing_is_audited_while_authentication_is_off() -> None:
    async with running_broker() as broker:
        await broker.users.create("bob")
        broker.audit.logged_in(Login(ALICE), "PLAIN")
        broker.audit.login_failed("alice", "h", "password")
        broker.audit.denied(ALICE, "consume", "topic orders")
        await broker.audit.room()
        assert broker.audit.waiting == 0
        assert broker.topics.find(AUDIT_TOPIC) is None
