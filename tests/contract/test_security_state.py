"""Users, roles, tokens and grants are in the store, and there again when it is opened again."""

import asyncio

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.security import ADMIN_ROLE, Grant, Principal
from tailrace.store.contract import Store
from tests.contract.conftest import Reopen
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock

SECURED = SecuritySettings(authentication="required")


def test_users_and_grants_are_there_after_a_restart(reopen: Reopen) -> None:
    clock = ManualClock()

    async def fill(store: Store) -> object:
        async with running_broker(store, clock, security=SECURED) as broker:
            await broker.users.create_role("readers")
            await broker.users.create("alice", "secret", ["readers", ADMIN_ROLE])
            await broker.users.create("bob")
            await broker.users.create("gone", "secret")
            await broker.users.create_token("bob", note="for a test")
            await broker.users.create_token("gone")
            await broker.grants.add(
                Grant(principal=who, operation="consume", kind="topic", name=f"t{number}", pattern="prefixed")
                for who in ("readers", "gone")
                for number in range(50)
            )
            await broker.users.drop("gone")
            await broker.grants.remove(lambda one: one.name == "t7")
            return _state(broker)

    async def look(store: Store) -> object:
        async with running_broker(store, clock, security=SECURED) as broker:
            assert broker.permissions.allows(Principal("x", roles=("readers",)), "consume", "topic", "t1.x")
            assert not broker.permissions.allows(Principal("x", roles=("readers",)), "consume", "topic", "t7")
            assert (await broker.authenticator.by_password("alice", "secret", "")).principal.name == "alice"
            return _state(broker)

    async def make_again(store: Store) -> None:
        async with running_broker(store, clock, security=SECURED) as broker:
            known = max(user.id for user in broker.users)
            again = await broker.users.create("gone")
            assert again.id > known + 1
            assert not broker.grants.of("gone")

    before = asyncio.run(fill(reopen(clock)))
    assert asyncio.run(look(reopen(clock))) == before
    asyncio.run(make_again(reopen(clock)))


def _state(broker: Broker) -> object:
    return list(broker.users), broker.users.roles(), broker.users.tokens(), list(broker.grants)
