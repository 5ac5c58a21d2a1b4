"""DescribeClientQuotas and AlterClientQuotas: the quotas of users and client ids (`broker/security/quotas.py`).

The quotas that Kafka has too have Kafka's names. Quotas of addresses, and Kafka's quotas of the time of its threads and of the
changes of topics, do not exist: a client that sets one is told so.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tailrace.broker.broker import Broker
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.errors import InvalidRequestError, TailraceError, UnsupportedQuotaEntityError
from tailrace.model.quota import DEFAULT, QUOTA_KINDS, Quota, QuotaEntity, QuotaKind
from tailrace.wire.messages.quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotaEntity,
    DescribedQuotas,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaFilterComponent,
    QuotaOperation,
    QuotaValue,
)

_USER = "user"
_CLIENT_ID = "client-id"
_IP = "ip"
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_KAFKAS: Mapping[QuotaKind, str] = {"publish_bytes": "producer_byte_rate", "consume_bytes": "consumer_byte_rate"}
_KEYS: Mapping[QuotaKind, str] = {kind: _KAFKAS.get(kind, kind) for kind in QUOTA_KINDS}
_KINDS: Mapping[str, QuotaKind] = {key: kind for kind, key in _KEYS.items()}
_INSTEAD = {
    "request_percentage": "set requests, the requests in a second",
    "controller_mutation_rate": "set requests, the requests in a second",
    "connection_creation_rate": "set connections, or the limit new_connections_per_second",
}


class QuotaHandlers:
    def __init__(self, broker: Broker) -> None:
        self._quotas = broker.quotas
        self._permissions = broker.permissions

    def routes(self) -> list[ApiRoute]:
        return [ApiRoute(DESCRIBE_CLIENT_QUOTAS_API, self.describe), ApiRoute(ALTER_CLIENT_QUOTAS_API, self.alter)]

    def describe(self, context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        try:
            self._permissions.require("describe_configs", "cluster")
            _check_filter(request.components)
        except TailraceError as error:
            return DescribeClientQuotasResponse(error_code=error.kafka_code, error_message=str(error), entries=None)
        found = [quota for quota in self._quotas if _is_wanted(quota.entity, request.components, strict=request.strict)]
        return DescribeClientQuotasResponse(error_message=None, entries=tuple(map(_described, found)))

    async def alter(self, context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        named = Counter(_name_of(entry.entity) for entry in request.entries)
        return AlterClientQuotasResponse(
            entries=tuple(
                [
                    await self._alter(
                        entry, validate_only=request.validate_only, is_named_twice=named[_name_of(entry.entity)] > 1
                    )
                    for entry in request.entries
                ]
            )
        )

    async def _alter(self, entry: QuotaAlteration, *, validate_only: bool, is_named_twice: bool) -> QuotaAlterationResult:
        try:
            self._permissions.require("alter_configs", "cluster")
            if is_named_twice:
                raise InvalidRequestError("the request alters the quotas of this user or client twice")
            entity = _entity(entry.entity)
            changes = _changes(entry.ops)
            if validate_only:
                self._quotas.check(entity, changes)
            else:
                await self._quotas.alter(entity, changes)
        except TailraceError as error:
            return QuotaAlterationResult(error_code=error.kafka_code, error_message=str(error), entity=entry.entity)
        return QuotaAlterationResult(error_message=None, entity=entry.entity)


def _name_of(entity: Sequence[AlteredQuotaEntity]) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entity)


def _entity(parts: Sequence[AlteredQuotaEntity]) -> QuotaEntity:
    """Return whom the quotas are for. A name that is null is that of the default."""
    names: dict[str, str] = {}
    for part in parts:
        if part.entity_type == _IP:
            raise InvalidRequestError("there are no quotas of addresses; set those of a user or client id")
        if part.entity_type not in (_USER, _CLIENT_ID) or part.entity_type in names:
            raise InvalidRequestError(f"{part.entity_type[:32]!r} must be 'user' or 'client-id', once each")
        names[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    return QuotaEntity(names.get(_USER), names.get(_CLIENT_ID))


def _changes(operations: Sequence[QuotaOperation]) -> dict[QuotaKind, float | None]:
    changes: dict[QuotaKind, float | None] = {}
    for each in operations:
        kind = _KINDS.get(each.key)
        if kind is None:
            advice = _INSTEAD.get(each.key, f"there are {', '.join(_KINDS)}")
            raise InvalidRequestError(f"there is no quota {each.key[:64]!r}; {advice}")
        if kind in changes:
            raise InvalidRequestError(f"the request alters {each.key} twice")
        if not each.remove and kind in _KAFKAS and math.isfinite(each.value) and each.value != int(each.value):
            raise InvalidRequestError(f"{each.key} is {each.value:g}; it must be a whole number of bytes")
        changes[kind] = None if each.remove else each.value
    return changes


def _check_filter(components: Sequence[QuotaFilterComponent]) -> None:
    kinds = [component.entity_type for component in components]
    for component in components:
        kind = component.entity_type
        if kind not in (_USER, _CLIENT_ID, _IP):
            raise UnsupportedQuotaEntityError(
                f"there are no quotas of {kind[:32]!r}; there are those of 'user' and 'client-id'"
            )
        if kinds.count(kind) > 1 or (kind == _IP and len(kinds) > 1):
            raise InvalidRequestError(f"{kind!r} can't be filtered by twice, nor 'ip' together with others")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequestError(f"the match type is {component.match_type}; it must be 0, 1 or 2")
        if (component.match is None) == (component.match_type == _EXACT):
            raise InvalidRequestError("a name belongs to the match type 0 (exact), and to no other")


def _is_wanted(entity: QuotaEntity, components: Sequence[QuotaFilterComponent], *, strict: bool) -> bool:
    names = _names(entity)
    for component in components:
        name = names.pop(component.entity_type, None)
        wanted = {_EXACT: component.match, _DEFAULT: DEFAULT}.get(component.match_type, name)
        if name is None or name != wanted:
            return False
    return not (strict and names)


def _names(entity: QuotaEntity) -> dict[str, str]:
    return {kind: name for kind, name in ((_USER, entity.user), (_CLIENT_ID, entity.client_id)) if name is not None}


def _described(quota: Quota) -> DescribedQuotas:
    return DescribedQuotas(
        entity=tuple(
            DescribedQuotaEntity(entity_type=kind, entity_name=None if name == DEFAULT else name)
            for kind, name in _names(quota.entity).items()
        ),
        values=tuple(QuotaValue(key=_KEYS[kind], value=value) for kind, value in sorted(quota.values.items())),
    )
