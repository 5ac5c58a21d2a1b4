"""What grants allow, and that it is known at once when they change."""

import pytest

from tailrace.broker.security.principals import act_as, current_principal, stop_acting
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import ForbiddenError, GroupForbiddenError, TopicForbiddenError, TransactionalIdForbiddenError
from tailrace.model.security import (
    ADMIN_ROLE,
    CLUSTER,
    EVERYBODY,
    IMPLIED_BY,
    OPERATIONS_ON,
    SERVER,
    Grant,
    NamePattern,
    Operation,
    Principal,
    ResourceKind,
)
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.sources import define_source

SECURED = SecuritySettings(authentication="required")
ALICE = Principal("alice", "192.0.2.1")


def grant(
    operation: Operation,
    kind: ResourceKind,
    name: str,
    pattern: NamePattern = "literal",
    *,
    to: str = "alice",
    host: str = "*",
    is_denied: bool = False,
) -> Grant:
    return Grant(principal=to, operation=operation, kind=kind, name=name, pattern=pattern, host=host, is_denied=is_denied)


@on_loop
async def test_with_authentication_off_everybody_may_do_everything() -> None:
    async with running_broker() as broker:
        token = act_as(ALICE)
        await broker.grants.add([grant("all", "topic", "*", is_denied=True)])
        broker.permissions.require("drop", "topic", "orders")
        broker.permissions.require_admin()
        broker.permissions.require_publish_somewhere()
        assert broker.permissions.may("alter", "cluster")
        stop_acting(token)


@on_loop
async def test_what_was_not_granted_is_refused_with_the_error_of_its_kind() -> None:
    async with running_broker(security=SECURED) as broker:
        assert current_principal() == SERVER
        broker.permissions.require("drop", "topic", "orders")
        act_as(ALICE)
        for kind, error in (
            ("topic", TopicForbiddenError),
            ("group", GroupForbiddenError),
            ("queue", GroupForbiddenError),
            ("transactional_id", TransactionalIdForbiddenError),
            ("table", ForbiddenError),
            ("source", ForbiddenError),
            ("cluster", ForbiddenError),
        ):
            for operation in OPERATIONS_ON[kind]:  # type: ignore[index]
                with pytest.raises(error) as raised:
                    broker.permissions.require(operation, kind, "orders")  # type: ignore[arg-type]
                assert type(raised.value) is error
        with pytest.raises(ForbiddenError, match="no administrator"):
            broker.permissions.require_admin()
        with pytest.raises(ForbiddenError, match="idempotent write"):
            broker.permissions.require_publish_somewhere()


@on_loop
async def test_a_grant_allows_its_operation_and_what_follows_from_it() -> None:
    async with running_broker(security=SECURED) as broker:
        for kind, operations in OPERATIONS_ON.items():
            name = CLUSTER if kind == "cluster" else "orders"
            for granted in operations:
                await broker.grants.add([grant(granted, kind, name)])
                for asked in operations:
                    follows = asked == granted or granted in IMPLIED_BY.get(asked, ())
                    whole = granted == "admin" or (granted == "all" and asked != "admin")
                    assert broker.permissions.allows(ALICE, asked, kind, name) == (follows or whole), (kind, granted, asked)
                await broker.grants.remove(lambda _: True)


@on_loop
async def test_a_denial_wins_over_every_permission_but_membership_of_admin() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.users.create_role("writers")
        await broker.users.create("alice", roles=["writers"])
        await broker.grants.add(
            [grant("all", "topic", "*"), grant("publish", "topic", "or", "prefixed", to="writers", is_denied=True)]
        )
        assert not broker.permissions.allows(ALICE, "publish", "topic", "orders")
        assert broker.permissions.allows(ALICE, "consume", "topic", "orders")
        assert broker.permissions.allows(ALICE, "publish", "topic", "payments")
        await broker.grants.add([grant("all", "topic", "*", to=EVERYBODY, is_denied=True)])
        assert not broker.permissions.allows(ALICE, "consume", "topic", "orders")
        await broker.users.grant_role(ADMIN_ROLE, "alice")
        assert broker.permissions.allows(ALICE, "publish", "topic", "orders")


@on_loop
async def test_names_are_literal_prefixed_or_patterns() -> None:
    async with running_broker(security=SECURED) as broker:

        async def allowed(pattern: NamePattern, named: str, *names: str) -> list[str]:
            await broker.grants.remove(lambda _: True)
            await broker.grants.add([grant("consume", "topic", named, pattern)])
            return [name for name in names if broker.permissions.allows(ALICE, "consume", "topic", name)]

        names = ("orders", "orders.eu", "orders.eu.paid", "order", "Orders")
        assert await allowed("literal", "orders", *names) == ["orders"]
        assert await allowed("literal", "*", *names) == list(names)
        assert await allowed("prefixed", "orders", *names) == ["orders", "orders.eu", "orders.eu.paid"]
        assert await allowed("pattern", "orders.*", *names) == ["orders.eu"]
        assert await allowed("pattern", "orders.>", *names) == ["orders", "orders.eu", "orders.eu.paid"]


@on_loop
async def test_all_topics_are_not_those_of_the_server_but_a_denial_is_about_them_too() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.grants.add([grant("all", "topic", "*")])
        for name in ("_audit", "_routes"):
            assert not broker.permissions.allows(ALICE, "consume", "topic", name)
            await broker.grants.add([grant("consume", "topic", name)])
            assert broker.permissions.allows(ALICE, "consume", "topic", name)
        await broker.grants.add([grant("consume", "topic", "*", is_denied=True)])
        assert not broker.permissions.allows(ALICE, "consume", "topic", "_audit")


@on_loop
async def test_a_grant_may_be_for_one_host() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.grants.add([grant("consume", "topic", "orders", host="192.0.2.1")])
        assert broker.permissions.allows(ALICE, "consume", "topic", "orders")
        assert not broker.permissions.allows(Principal("alice", "192.0.2.2"), "consume", "topic", "orders")
        await broker.grants.add(
            [grant("publish", "topic", "orders"), grant("publish", "topic", "orders", host="192.0.2.2", is_denied=True)]
        )
        assert broker.permissions.allows(ALICE, "publish", "topic", "orders")
        assert not broker.permissions.allows(Principal("alice", "192.0.2.2"), "publish", "topic", "orders")


@on_loop
async def test_who_may_alter_a_source_reads_what_its_captures_write() -> None:
    async with running_broker(security=SECURED) as broker:
        await define_source(broker, "orders")
        captured = ("_changes.shop.public.orders", "_held.shop")
        others = ("_changes.shop.orders", "_changes.shop.public.bills", "_held.shops", "_audit", "outbox")

        def readable() -> set[str]:
            return {name for name in (*captured, *others) if broker.permissions.allows(ALICE, "consume", "topic", name)}

        assert readable() == set()
        await broker.grants.add([grant("alter", "source", "Shop")])
        assert readable() == set(captured)
        assert not any(broker.permissions.allows(ALICE, "publish", "topic", name) for name in captured)
        await broker.grants.add([grant("select", "table", "shop.public.orders", is_denied=True)])
        assert readable() == {"_held.shop"}
        await broker.grants.remove(lambda one: one.is_denied)
        assert readable() == set(captured)
        await broker.sources.drop("shop")
        await broker.grants.add([grant("alter", "source", "shop")])
        await broker.topics.create_reserved("_changes.shop.public.orders", alias="shop.public.orders")
        assert readable() == {"_held.shop"}, "the table of this name is no source's any more"


@on_loop
async def test_the_changes_of_a_table_are_read_by_who_may_select_from_it() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.grants.add([grant("all", "topic", "*"), grant("all", "topic", "_changes.", "prefixed")])
        assert not broker.permissions.allows(ALICE, "consume", "topic", "_changes.app.orders")
        await broker.grants.add([grant("select", "table", "app.orders")])
        assert broker.permissions.allows(ALICE, "consume", "topic", "_changes.app.orders")
        assert broker.permissions.allows(ALICE, "describe", "topic", "_changes.app.orders")
        assert not broker.permissions.allows(ALICE, "publish", "topic", "_changes.app.orders")
        assert not broker.permissions.allows(ALICE, "drop", "topic", "_changes.app.orders")


@on_loop
async def test_a_table_is_the_same_however_its_name_is_written() -> None:
    async with running_broker(security=SECURED) as broker:
        await broker.grants.add([grant("all", "table", "*"), grant("select", "table", "App.Orders", is_denied=True)])
        for name in ("app.orders", "APP.ORDERS"):
            assert not broker.permissions.allows(ALICE, "select", "table", name)
        assert not broker.permissions.allows(ALICE, "consume", "topic", "_changes.App.Orders")
        await broker.grants.add([grant("select", "table", "public.Größe", is_denied=True)])
        assert not broker.permissions.allows(ALICE, "select", "table", "größe")
        assert not broker.permissions.allows(ALICE, "consume", "topic", "_changes.gr_u00f6__u00df_e")
        await broker.grants.add([grant("alter", "source", "Shop", is_denied=True), grant("all", "source", "*")])
        assert not broker.permissions.allows(ALICE, "alter", "source", "shop")


@on_loop
async def test_who_may_publish_to_any_topic_may_get_a_producer_id() -> None:
    async with running_broker(security=SECURED) as broker:

        async def may(*grants: Grant) -> bool:
            await broker.grants.remove(lambda _: True)
            await broker.grants.add(grants)
            token = act_as(ALICE)
            try:
                broker.permissions.require_publish_somewhere()
            except ForbiddenError:
                return False
            finally:
                stop_acting(token)
            return True

        publish = grant("publish", "topic", "orders")
        assert not await may(grant("consume", "topic", "orders"))
        assert await may(grant("idempotent_write", "cluster", CLUSTER))
        assert await may(publish)
        assert await may(grant("all", "topic", "or", "prefixed", to=EVERYBODY))
        assert not await may(publish, grant("publish", "topic", "orders", is_denied=True))
        assert not await may(publish, grant("all", "topic", "o", "prefixed", is_denied=True))
        assert not await may(publish, grant("publish", "topic", "*", is_denied=True))
        assert await may(publish, grant("publish", "topic", "other", is_denied=True))


@on_loop
async def test_what_is_remembered_is_forgotten_with_every_change() -> None:
    async with running_broker(security=SECURED) as broker:
        changes: list[None] = []
        broker.permissions.observers.append(lambda: changes.append(None))

        def may() -> bool:
            return broker.permissions.allows(ALICE, "consume", "topic", "orders")

        await broker.users.create_role("readers")
        await broker.users.create("alice")
        assert not may()
        await broker.grants.add([grant("consume", "topic", "orders", to="readers")])
        assert not may()
        await broker.users.grant_role("readers", "alice")
        assert may()
        await broker.users.revoke_role("readers", "alice")
        assert not may()
        await broker.grants.add([grant("consume", "topic", "orders")])
        assert may()
        await broker.grants.remove(lambda one: one.principal == "alice")
        assert not may()
        await broker.users.grant_role("readers", "alice")
        assert may()
        await broker.users.drop("alice")
        assert not may()
        assert len(changes) == 9
