"""Grants: what there can be, and how they change."""

import asyncio
from collections.abc import Callable

import pytest

from tailrace.broker.security.grants import check_grant
from tailrace.model.errors import InvalidPatternError, InvalidRequestError, LimitExceededError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.security import (
    CLUSTER,
    OPERATIONS,
    OPERATIONS_ON,
    Grant,
    NamePattern,
    Operation,
    ResourceKind,
)
from tests.support.aio import on_loop
from tests.support.brokers import running_broker


def grant(
    operation: Operation = "consume", kind: ResourceKind = "topic", name: str = "a", pattern: NamePattern = "literal"
) -> Grant:
    return Grant(principal="alice", operation=operation, kind=kind, name=name, pattern=pattern)


def test_each_kind_has_its_operations_and_no_others() -> None:
    for kind in OPERATIONS_ON:
        for operation in OPERATIONS:
            one = grant(operation, kind, CLUSTER)
            if operation in OPERATIONS_ON[kind]:
                check_grant(one, DEFAULT_LIMITS)
            else:
                with pytest.raises(InvalidRequestError, match=f"there is no {operation} on a {kind}"):
                    check_grant(one, DEFAULT_LIMITS)


def test_the_cluster_has_one_name() -> None:
    for one in (grant("alter", "cluster", "other"), grant("alter", "cluster", CLUSTER, "prefixed")):
        with pytest.raises(InvalidRequestError, match="the only resource"):
            check_grant(one, DEFAULT_LIMITS)


def test_only_topics_are_named_by_patterns_and_these_are_legal() -> None:
    check_grant(grant(name="orders.*", pattern="pattern"), DEFAULT_LIMITS)
    with pytest.raises(InvalidRequestError, match="patterns name topics"):
        check_grant(grant("select", "table", "orders.*", "pattern"), DEFAULT_LIMITS)
    with pytest.raises(InvalidPatternError):
        check_grant(grant(name="orders..*", pattern="pattern"), DEFAULT_LIMITS)


def test_names_are_neither_empty_nor_too_long() -> None:
    for name in ("", "x" * (DEFAULT_LIMITS.group_name_length + 1)):
        with pytest.raises(InvalidRequestError, match="can't be the name"):
            check_grant(grant(name=name), DEFAULT_LIMITS)


@on_loop
async def test_one_that_is_there_already_changes_nothing() -> None:
    async with running_broker() as broker:
        called: list[None] = []
        broker.grants.observers.append(lambda: called.append(None))
        await broker.grants.add([grant(), grant()])
        await broker.grants.add([grant()])
        assert list(broker.grants) == [grant()]
        assert len(called) == 1


@on_loop
async def test_of_grants_that_are_added_together_one_that_cant_be_refuses_all() -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError):
            await broker.grants.add([grant(), grant("select")])
        assert list(broker.grants) == []


@on_loop
async def test_they_are_bounded() -> None:
    async with running_broker(limits=Limits(grants=2)) as broker:
        await broker.grants.add([grant(name="a"), grant(name="b")])
        with pytest.raises(LimitExceededError, match="limit grants"):
            await broker.grants.add([grant(name="c")])
        await broker.grants.add([grant(name="b")])


@on_loop
async def test_what_matches_is_removed_and_returned() -> None:
    async with running_broker() as broker:
        kept, gone = grant(name="kept"), grant(name="gone")
        await broker.grants.add([kept, gone])
        assert await broker.grants.remove(lambda one: one.name == "gone") == [gone]
        assert await broker.grants.remove(lambda one: one.name == "gone") == []
        assert list(broker.grants) == list(broker.grants.of("alice")) == [kept]


@on_loop
async def test_concurrent_changes_are_all_made() -> None:
    async with running_broker() as broker:
        await asyncio.gather(*(broker.grants.add([grant(name=f"t{n}")]) for n in range(40)))
        await asyncio.gather(*(broker.grants.remove(_named(f"t{n}")) for n in range(0, 40, 2)))
        assert {one.name for one in broker.grants} == {f"t{n}" for n in range(1, 40, 2)}


def _named(name: str) -> Callable[[Grant], bool]:
    return lambda one: one.name == name
