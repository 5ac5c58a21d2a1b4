"""Users, roles and tokens: one change at a time, each with all that belongs to it in one commit."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.security.users import Users
from tailrace.model.errors import (
    InvalidRequestError,
    LastAdministratorError,
    LimitExceededError,
    TailraceError,
    UnacceptableCredentialError,
    UnknownUserError,
    UserExistsError,
)
from tailrace.model.limits import Limits
from tailrace.model.security import ADMIN_ROLE, Grant, Principal
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock

SECURED = SecuritySettings(authentication="required")
PUBLISH = Grant(principal="alice", operation="publish", kind="topic", name="orders")


@on_loop
async def test_of_forty_concurrent_creations_of_a_user_one_succeeds() -> None:
    async with running_broker() as broker:
        outcomes = await asyncio.gather(*(broker.users.create("alice", f"pw {n}") for n in range(40)), return_exceptions=True)
        made = [each for each in outcomes if not isinstance(each, BaseException)]
        assert len(made) == 1
        assert all(isinstance(each, UserExistsError) for each in outcomes if isinstance(each, BaseException))
        assert [user.name for user in broker.users] == ["alice"]
        assert broker.users.get("alice") == made[0]


@on_loop
async def test_a_user_that_is_dropped_goes_with_its_grants_and_tokens_in_one_commit() -> None:
    store = GatedStore(ManualClock())
    async with running_broker(store, security=SECURED) as broker:
        await broker.users.create("alice", "secret")
        token = await broker.users.create_token("alice")
        await broker.grants.add([PUBLISH])
        store.close_gate()
        dropping = asyncio.ensure_future(broker.users.drop("alice"))
        await until(lambda: bool(store.in_flight))
        await turns()
        assert len(store.in_flight) == 1
        assert broker.users.find("alice") is not None
        assert broker.permissions.allows(Principal("alice"), "publish", "topic", "orders")
        store.open_gate()
        await dropping
        assert broker.users.find("alice") is None
        assert broker.users.find_token(token.text) is None
        assert list(broker.grants) == []
        assert not broker.permissions.allows(Principal("alice"), "publish", "topic", "orders")


@on_loop
async def test_a_user_that_is_made_again_inherits_nothing() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.users.create("root", "secret", [ADMIN_ROLE])
        first = await broker.users.create("alice", "secret", [ADMIN_ROLE])
        token = await broker.users.create_token("alice")
        await broker.grants.add([PUBLISH])
        login = await broker.authenticator.by_password("alice", "secret", "")
        await broker.users.drop("alice")
        second = await broker.users.create("alice", "secret")
        assert second.id > first.id
        assert not broker.permissions.allows(Principal("alice"), "publish", "topic", "orders")
        assert not broker.permissions.is_admin(Principal("alice"))
        assert broker.users.find_token(token.text) is None
        assert not broker.authenticator.is_current(login)


@on_loop
async def test_a_change_whose_commit_fails_changes_nothing() -> None:
    store = GatedStore(ManualClock())
    async with running_broker(store) as broker:
        store.close_gate()
        creating = asyncio.ensure_future(broker.users.create("alice"))
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(TailraceError):
            await creating
        store.open_gate()
        assert broker.users.find("alice") is None
        await broker.users.create("alice")


@on_loop
async def test_names_that_cant_be_told_apart_or_mean_somebody_else_are_refused() -> None:
    async with running_broker() as broker:
        await broker.users.create_role("readers")
        for name in ("", "*", "SERVER", "ANONYMOUS", "a:b", "a'b", 'a"b', "a\nb", "a\u200bb"):
            with pytest.raises(UnacceptableCredentialError, match="can't be the name"):
                await broker.users.create(name)
        with pytest.raises(UserExistsError, match="role 'readers'"):
            await broker.users.create("readers")
        with pytest.raises(LimitExceededError, match="user_name_length"):
            await broker.users.create("x" * 10_000)


@on_loop
async def test_users_and_tokens_are_bounded() -> None:
    limits = Limits(users=3, tokens=1)
    async with running_broker(limits=limits) as broker:
        await broker.users.create("a")
        await broker.users.create("b")
        with pytest.raises(LimitExceededError, match="users"):
            await broker.users.create("c")
        await broker.users.create_token("a")
        with pytest.raises(LimitExceededError, match="tokens"):
            await broker.users.create_token("b")


@on_loop
async def test_roles_of_roles_count_and_can_make_no_circle() -> None:
    async with running_broker() as broker:
        users = broker.users
        for role in ("one", "two", "three"):
            await users.create_role(role)
        await users.create("alice", roles=["one"])
        await users.grant_role("two", "one")
        await users.grant_role("three", "two")
        assert users.names_of(Principal("alice")) == {"alice", "*", "one", "two", "three"}
        for role in ("one", "two", "three"):
            with pytest.raises(InvalidRequestError, match="itself a member"):
                await users.grant_role(role, "three") if role != "three" else await users.grant_role("three", "three")
        await users.revoke_role("two", "one")
        assert users.names_of(Principal("alice")) == {"alice", "*", "one"}


@on_loop
async def test_a_role_that_is_dropped_is_taken_from_its_members() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.users.create_role("readers")
        await broker.users.create("alice", roles=["readers"])
        await broker.grants.add([Grant(principal="readers", operation="consume", kind="topic", name="orders")])
        assert broker.permissions.allows(Principal("alice"), "consume", "topic", "orders")
        await broker.users.drop_role("readers")
        assert broker.users.get("alice").roles == ()
        assert not broker.permissions.allows(Principal("alice"), "consume", "topic", "orders")
        await broker.users.create_role("readers")
        assert broker.users.names_of(Principal("alice")) == {"alice", "*"}
        with pytest.raises(InvalidRequestError, match="always there"):
            await broker.users.drop_role(ADMIN_ROLE)


@on_loop
async def test_who_has_the_name_of_a_role_is_no_member_of_it() -> None:
    async with running_broker(security=SECURED) as broker:
        assert not broker.permissions.is_admin(Principal(ADMIN_ROLE))
        assert broker.permissions.is_admin(Principal("somebody", roles=(ADMIN_ROLE,)))


@on_loop
async def test_tokens_are_found_by_all_of_their_text_until_they_expire() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.users.create("alice")
        token, text = await broker.users.create_token("alice", expires_ms=clock.now_ms() + 1_000)
        assert broker.users.find_token(text) == token
        for wrong in ("", text[:-1], text + "x", text.replace("tlr_", ""), f"tlr_{token.id}_", f"tlr__{text}", "tlr_ü_ü"):
            assert broker.users.find_token(wrong) is None
        clock.advance(1_000)
        assert broker.users.find_token(text) is None


@on_loop
async def test_no_secret_is_stored() -> None:
    store = MemoryStore(ManualClock())
    async with running_broker(store) as broker:
        await broker.users.create("alice", "planted secret")
        _, text = await broker.users.create_token("alice")
        stored = b"".join(key + value for key, value in store.range(b""))
        assert b"planted" not in stored
        assert text.rpartition("_")[2].encode() not in stored
        assert "planted" not in repr(list(broker.users)) + repr(broker.users.tokens())


@on_loop
async def test_what_is_not_there_is_an_error_that_says_so() -> None:
    async with running_broker() as broker:
        await broker.users.create("alice")
        for change in (
            broker.users.drop("alise"),
            broker.users.set_password("alise", "x"),
            broker.users.grant_role("nothing", "alice"),
            broker.users.drop_token("000"),
            broker.users.create_token("alise"),
            broker.users.remove_verifier("alice", "SCRAM-SHA-256"),
        ):
            with pytest.raises(UnknownUserError):
                await change


@on_loop
async def test_state_is_there_again_in_the_next_broker_of_the_store() -> None:
    store = MemoryStore(ManualClock())
    async with running_broker(store, security=SECURED) as broker:
        await _fill(broker)
        before = _state(broker)
    async with running_broker(store, security=SECURED) as broker:
        assert _state(broker) == before
        assert (await broker.authenticator.by_password("alice", "secret", "")).principal.name == "alice"


async def _fill(broker: Broker) -> None:
    await broker.users.create_role("readers")
    await broker.users.create("alice", "secret", ["readers"])
    await broker.users.create("bob")
    await broker.users.create_token("bob", note="for a test")
    await broker.grants.add([PUBLISH, Grant(principal="*", operation="describe", kind="cluster", name="kafka-cluster")])


def _state(broker: Broker) -> object:
    return list(broker.users), broker.users.roles(), broker.users.tokens(), list(broker.grants)


TAKEN_AWAY: list[Callable[[Users], Awaitable[object]]] = [
    lambda users: users.drop("root"),
    lambda users: users.revoke_role("operators", "root"),
    lambda users: users.revoke_role(ADMIN_ROLE, "operators"),
    lambda users: users.drop_role("operators"),
    lambda users: users.set_password("root", None),
]


@pytest.mark.parametrize("taken", TAKEN_AWAY)
@pytest.mark.parametrize("security", [SECURED, SecuritySettings()])
@on_loop
async def test_the_last_administrator_cant_be_taken_away(
    taken: Callable[[Users], Awaitable[object]], security: SecuritySettings
) -> None:
    async with running_broker(security=security) as broker:
        users = broker.users
        await users.create_role("operators")
        await users.grant_role(ADMIN_ROLE, "operators")
        await users.create("root", "secret", ["operators"])
        await users.create("alice", "secret")
        with pytest.raises(LastAdministratorError, match="first"):
            await taken(users)
        assert broker.permissions.is_admin(Principal("root"))
        assert (await broker.authenticator.by_password("root", "secret", "")).principal.name == "root"
        await users.grant_role(ADMIN_ROLE, "alice")
        await taken(users)


@on_loop
async def test_the_last_administrator_keeps_a_password_or_a_token() -> None:
    async with running_broker(clock=(clock := ManualClock()), security=SECURED) as broker:
        users = broker.users
        await users.create("root", "secret", [ADMIN_ROLE])
        await users.remove_verifier("root", "SCRAM-SHA-512")
        expiring = await users.create_token("root", expires_ms=clock.now_ms() + 1000)
        clock.advance(2000)
        assert users.find_token(expiring.text) is None
        with pytest.raises(LastAdministratorError, match="give 'root' one first, by ALTER USER or CREATE TOKEN"):
            await users.remove_verifier("root", "SCRAM-SHA-256")
        token = await users.create_token("root")
        await users.remove_verifier("root", "SCRAM-SHA-256")
        await users.drop_token(expiring.token.id)
        with pytest.raises(LastAdministratorError):
            await users.drop_token(token.token.id)
        await users.create("owner_of_a_certificate", None, [ADMIN_ROLE])
        with pytest.raises(LastAdministratorError, match="give 'owner_of_a_certificate' one first"):
            await users.drop("root")
        await users.set_password("owner_of_a_certificate", "secret")
        await users.drop("root")


@on_loop
async def test_of_two_administrators_who_are_dropped_at_the_same_time_one_stays() -> None:
    store = GatedStore(ManualClock())
    async with running_broker(store, security=SECURED) as broker:
        await broker.users.create("one", "secret", [ADMIN_ROLE])
        await broker.users.create("two", "secret", [ADMIN_ROLE])
        store.close_gate()
        changes = [
            asyncio.ensure_future(change)
            for change in (broker.users.drop("one"), broker.users.revoke_role(ADMIN_ROLE, "two"), broker.users.drop("two"))
        ]
        await until(lambda: bool(store.in_flight))
        store.open_gate()
        first, *others = await asyncio.gather(*changes, return_exceptions=True)
        assert first is None
        assert [type(each) for each in others] == [LastAdministratorError] * 2
        assert [user.name for user in broker.users] == ["two"]
        assert broker.permissions.is_admin(Principal("two"))


@on_loop
async def test_without_administrators_everything_can_be_dropped() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.users.create("alice", "secret")
        await broker.users.set_password("alice", None)
        await broker.users.create("owner_of_a_certificate", None, [ADMIN_ROLE])
        await broker.users.create("another", None, [ADMIN_ROLE])
        await broker.users.drop("alice")
        await broker.users.drop("another")
