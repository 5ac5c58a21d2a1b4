"""Permissions are what a plain reading of the grants says, after every change of them."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import TailraceError
from tailrace.model.security import ADMIN_ROLE, IMPLIED_BY, Grant, NamePattern, Operation, Principal
from tests.support.brokers import running_broker

USERS = ("ann", "ben")
ROLES = ("one", "two", "three")
HOSTS = ("*", "192.0.2.1", "192.0.2.2")
OPERATIONS: tuple[Operation, ...] = ("describe", "consume", "publish", "alter", "all", "admin")
NAMES = ("a", "a.b", "a.b.c", "ab", "b", "_audit")
SECURED = SecuritySettings(authentication="required")


class Member(NamedTuple):
    """Makes somebody a member of a role, or not any more."""

    role: str
    member: str
    is_one: bool


class Dropped(NamedTuple):
    """Drops a user and makes it again."""

    user: str


class Taken(NamedTuple):
    """Removes a grant."""

    grant: Grant


PATTERNS: dict[NamePattern, tuple[str, ...]] = {
    "literal": ("*", *NAMES),
    "prefixed": ("a", "a.", "b", "_"),
    "pattern": ("a.*", "a.>", ">", "*"),
}


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    pattern = draw(st.sampled_from(sorted(PATTERNS)))
    return Grant(
        principal=draw(st.sampled_from((*USERS, *ROLES, "*"))),
        operation=draw(st.sampled_from(OPERATIONS)),
        kind="topic",
        name=draw(st.sampled_from(PATTERNS[pattern])),
        pattern=pattern,
        host=draw(st.sampled_from(HOSTS)),
        is_denied=draw(st.booleans()),
    )


memberships = st.builds(
    Member, st.sampled_from((*ROLES, ADMIN_ROLE)), st.sampled_from((*USERS, *ROLES)), st.sampled_from((True, True, False))
)
changes = st.lists(
    grants() | memberships | st.builds(Dropped, st.sampled_from(USERS)) | st.builds(Taken, grants()), max_size=25
)
questions = st.tuples(st.sampled_from(USERS), st.sampled_from(HOSTS[1:]), st.sampled_from(OPERATIONS), st.sampled_from(NAMES))


@settings(max_examples=150)
@given(changes, st.lists(questions, min_size=1, max_size=12))
def test_the_answer_is_that_of_a_plain_reading(
    made: list[Grant | Member | Dropped | Taken], asked: list[tuple[str, str, Operation, str]]
) -> None:
    async def run() -> None:
        async with running_broker(security=SECURED) as broker:
            # The last administrator can't be taken away.
            await broker.users.create("root", roles=[ADMIN_ROLE])
            for role in ROLES:
                await broker.users.create_role(role)
            for user in USERS:
                await broker.users.create(user)
            for change in made:
                await _apply(broker, change)
                for user, host, operation, name in asked:
                    found = broker.permissions.allows(Principal(user, host), operation, "topic", name)
                    assert found == _reads(broker, user, host, operation, name), (change, user, host, operation, name)

    asyncio.run(run())


async def _apply(broker: Broker, change: Grant | Member | Dropped | Taken) -> None:
    if isinstance(change, Grant):
        await broker.grants.add([change])
    elif isinstance(change, Taken):
        await broker.grants.remove(lambda one: one == change.grant)
    elif isinstance(change, Dropped):
        await broker.users.drop(change.user)
        await broker.users.create(change.user)
    elif change.is_one:
        try:
            await broker.users.grant_role(change.role, change.member)
        except TailraceError:
            # It would be a member of itself.
            return
    else:
        await broker.users.revoke_role(change.role, change.member)


def _reads(broker: Broker, user: str, host: str, operation: Operation, name: str) -> bool:
    names = {user, "*"} | _roles_of(broker, user)
    if ADMIN_ROLE in names:
        return True
    about = [one for one in broker.grants if one.principal in names and one.host in ("*", host) and _names(one, name)]
    if any(one.is_denied and one.operation in ("all", operation) for one in about):
        return False
    enough: Collection[str] = (
        ("admin",) if operation == "admin" else ("all", "admin", operation, *IMPLIED_BY.get(operation, ()))
    )
    return any(not one.is_denied and one.operation in enough for one in about)


def _roles_of(broker: Broker, name: str) -> set[str]:
    found = broker.users.find(name) or broker.users.find_role(name)
    direct = set(() if found is None else found.roles)
    return direct.union(*(_roles_of(broker, role) for role in direct))


def _names(grant: Grant, name: str) -> bool:
    if grant.pattern == "prefixed":
        return name.startswith(grant.name)
    if grant.pattern == "literal":
        return grant.name == name or (grant.name == "*" and (grant.is_denied or not name.startswith("_")))
    if name.startswith("_") and grant.name in ("*", ">"):
        return False
    wanted, parts = grant.name.split("."), name.split(".")
    if wanted[-1] == ">":
        head = wanted[:-1]
        return parts[: len(head)] == head
    return len(parts) == len(wanted) and all(sign in ("*", part) for sign, part in zip(wanted, parts, strict=True))
