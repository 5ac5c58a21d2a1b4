"""Kafka's administrators set and see quotas as in Kafka."""

from typing import Any

import pytest

from tailrace.broker.security.principals import act_as
from tailrace.model.quota import DEFAULT, QuotaEntity
from tailrace.model.security import Principal
from tailrace.wire.messages.quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaFilterComponent,
    QuotaOperation,
)
from tests.support.aio import on_loop
from tests.support.kafka import Asker, running_asker

NONE, CLUSTER_FORBIDDEN, UNSUPPORTED_VERSION, INVALID_REQUEST = 0, 31, 35, 42
EXACT, IS_DEFAULT, ANY = 0, 1, 2
VERSIONS = pytest.mark.parametrize("version", [0, 1])


def alteration(entity: dict[str, str | None], **values: float | None) -> QuotaAlteration:
    return QuotaAlteration(
        entity=tuple(AlteredQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()),
    )


async def alter(asker: Asker, *entries: QuotaAlteration, version: int = 1, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    response = await asker.ask(ALTER_CLIENT_QUOTAS_API, request, version)
    assert [each.entity for each in response.entries] == [entry.entity for entry in entries]
    assert all(bool(each.error_message) == bool(each.error_code) for each in response.entries)
    return [each.error_code for each in response.entries]


async def described(asker: Asker, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(
        components=tuple(
            QuotaFilterComponent(entity_type=kind, match_type=match_type, match=match) for kind, match_type, match in components
        ),
        strict=strict,
    )
    response = await asker.ask(DESCRIBE_CLIENT_QUOTAS_API, request, version)
    if response.error_code:
        assert response.entries is None
        assert response.error_message
        return response.error_code
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries
    ]


@VERSIONS
@on_loop
async def test_quotas_that_are_set_are_in_force_and_described(version: int) -> None:
    async with running_asker() as asker:
        entries = (
            alteration({"user": "alice"}, producer_byte_rate=1000, requests=5, connections=3, open_transactions=2),
            alteration({"user": None, "client-id": "app"}, consumer_byte_rate=7),
            alteration({"client-id": None}, sql_seconds=0.5),
        )
        assert await alter(asker, *entries, version=version) == [NONE] * 3
        assert await described(asker, version=version) == [
            ({"client-id": None}, {"sql_seconds": 0.5}),
            ({"user": None, "client-id": "app"}, {"consumer_byte_rate": 7}),
            ({"user": "alice"}, {"connections": 3, "open_transactions": 2, "producer_byte_rate": 1000, "requests": 5}),
        ]
        assert asker.broker.quotas.charge(Principal("alice"), "x", "publish_bytes", 2000) == 1.0
        assert await alter(asker, alteration({"user": "alice"}, producer_byte_rate=None), version=version) == [NONE]
        assert asker.broker.quotas.get(QuotaEntity("alice")) == {"requests": 5, "connections": 3, "open_transactions": 2}
        assert asker.broker.quotas.get(QuotaEntity(DEFAULT, "app")) == {"consume_bytes": 7}


@on_loop
async def test_quotas_are_filtered_as_in_kafka() -> None:
    async with running_asker() as asker:
        whole: list[dict[str, str | None]] = [
            {"client-id": "app"},
            {"user": None},
            {"user": "alice"},
            {"user": "alice", "client-id": "app"},
        ]
        assert await alter(asker, *(alteration(one, requests=1) for one in whole)) == [NONE] * len(whole)

        async def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[dict[str, str | None]]:
            return [entity for entity, _ in await described(asker, *components, strict=strict)]

        assert await found() == whole
        assert await found(strict=True) == []
        assert await found(("user", EXACT, "alice")) == whole[2:]
        assert await found(("user", EXACT, "alice"), strict=True) == [{"user": "alice"}]
        assert await found(("user", IS_DEFAULT, None)) == [{"user": None}]
        assert await found(("user", ANY, None)) == whole[1:]
        assert await found(("user", ANY, None), ("client-id", EXACT, "app")) == whole[3:]
        assert await found(("client-id", EXACT, "other")) == []
        assert await found(("ip", ANY, None)) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("group", ANY, None)], UNSUPPORTED_VERSION),
        ([("user", ANY, None), ("user", EXACT, "alice")], INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], INVALID_REQUEST),
        ([("user", EXACT, None)], INVALID_REQUEST),
        ([("user", IS_DEFAULT, "alice")], INVALID_REQUEST),
        ([("user", 3, None)], INVALID_REQUEST),
    ],
)
@on_loop
async def test_filters_that_are_none_are_refused(components: list[tuple[str, int, str | None]], code: int) -> None:
    async with running_asker() as asker:
        assert await described(asker, *components) == code


@pytest.mark.parametrize(
    "wrong",
    [
        alteration({}, requests=1),
        alteration({"ip": "192.0.2.1"}, connection_creation_rate=1),
        alteration({"group": "g"}, requests=1),
        alteration({"user": ""}, requests=1),
        alteration({"user": "alice", "client-id": "app"}, connections=5),
        alteration({"client-id": "app"}, open_transactions=5),
        alteration({"user": "alice"}, request_percentage=50),
        alteration({"user": "alice"}, controller_mutation_rate=5),
        alteration({"user": "alice"}, publish_bytes=5),
        alteration({"user": "alice"}, producer_byte_rate=0),
        alteration({"user": "alice"}, producer_byte_rate=-1),
        alteration({"user": "alice"}, producer_byte_rate=1.5),
        alteration({"user": "alice"}, producer_byte_rate=float("nan")),
        alteration({"user": "alice"}, consumer_byte_rate=float("inf")),
    ],
)
@on_loop
async def test_an_alteration_that_is_wrong_is_refused_and_the_others_are_made(wrong: QuotaAlteration) -> None:
    async with running_asker() as asker:
        assert await alter(asker, alteration({"user": "bob"}, requests=1), wrong) == [NONE, INVALID_REQUEST]
        assert [str(quota.entity) for quota in asker.broker.quotas] == ["user 'bob'"]


@on_loop
async def test_the_same_user_or_quota_twice_is_refused() -> None:
    async with running_asker() as asker:
        twice = alteration({"user": "alice"}, requests=1)
        assert await alter(asker, twice, twice) == [INVALID_REQUEST] * 2
        same = QuotaAlteration(entity=twice.entity, ops=twice.ops * 2)
        assert await alter(asker, same) == [INVALID_REQUEST]


@on_loop
async def test_what_is_only_validated_changes_nothing() -> None:
    async with running_asker() as asker:
        entries = (alteration({"user": "alice"}, requests=1), alteration({"user": "bob"}, requests=-1))
        assert await alter(asker, *entries, validate_only=True) == [NONE, INVALID_REQUEST]
        assert list(asker.broker.quotas) == []


@on_loop
async def test_only_those_who_may_configure_the_cluster_see_and_set_quotas() -> None:
    async with running_asker() as asker:
        asker.broker.permissions.is_on = True
        act_as(Principal("mallory"))
        assert await alter(asker, alteration({"user": "mallory"}, requests=10**6)) == [CLUSTER_FORBIDDEN]
        assert await described(asker) == CLUSTER_FORBIDDEN
        assert list(asker.broker.quotas) == []
