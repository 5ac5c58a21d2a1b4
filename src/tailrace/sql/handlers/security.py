"""CREATE, ALTER and DROP USER, ROLE and TOKEN, GRANT, REVOKE and SHOW GRANTS, and quotas.

Quotas need `alter_configs` on the cluster, as in Kafka, and the others the role admin. Without it everybody may change the own
password, has tokens for himself, and who has `admin` on a resource grants operations on it to others.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.model.clock import Clock
from tailrace.model.errors import SqlError, UnknownUserError
from tailrace.model.quota import QuotaEntity
from tailrace.model.security import ANY_NAME, EVERYBODY, OPERATIONS_ON, Grant, Principal
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import ColumnType
from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.interval_texts import read_interval
from tailrace.sql.analysis.types import TIMESTAMPTZ
from tailrace.sql.privileges import denial
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.select.execution import tables_and_topics
from tailrace.sql.statements import (
    AlterQuotaStatement,
    CreateRoleStatement,
    CreateTokenStatement,
    CreateUserStatement,
    DropRoleStatement,
    DropTokenStatement,
    DropUserStatement,
    GrantedResource,
    GrantRoleStatement,
    GrantStatement,
    RevokeRoleStatement,
    RevokeStatement,
    SetPasswordStatement,
    ShowGrantsStatement,
    Statement,
)
from tailrace.sql.visible_security import grant_row, grants_of, sees_all, visible_grants

_TEXT = ColumnType("text")
_DAYS_OF_MONTH = 30
_LIVE_BY_USE = ("group", "queue", "transactional_id")
"""Kinds of resources that begin to exist when they are first used, which takes a grant."""
TOKEN_COLUMNS = tuple(ResultColumn(name, _TEXT) for name in ("token_id", "token", "user_name"))
GRANT_COLUMNS = tuple(
    ResultColumn(name, _TEXT) for name in ("principal", "operation", "kind", "name", "pattern", "host", "permission")
)


class SecurityHandler:
    """Used on the event loop, in the task of the request."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._users = broker.users
        self._grants = broker.grants
        self._permissions = broker.permissions
        self._clock = clock

    async def create_user(self, asked: CreateUserStatement) -> Result:
        self._require_admin(asked)
        if asked.if_not_exists and self._users.find(asked.name) is not None:
            return Result(status="CREATE USER, which exists")
        await self._users.create(asked.name, None if asked.password is None else asked.password.value, asked.roles)
        return Result(status="CREATE USER")

    async def set_password(self, asked: SetPasswordStatement) -> Result:
        self._require_self_or_admin(asked.name, asked)
        await self._users.set_password(asked.name, None if asked.password is None else asked.password.value)
        return Result(status="ALTER USER")

    async def drop_user(self, asked: DropUserStatement) -> Result:
        self._require_admin(asked)
        if asked.if_exists and self._users.find(asked.name) is None:
            return Result(status="DROP USER, which does not exist")
        await self._users.drop(asked.name)
        return Result(status="DROP USER")

    async def create_role(self, asked: CreateRoleStatement) -> Result:
        self._require_admin(asked)
        await self._users.create_role(asked.name)
        return Result(status="CREATE ROLE")

    async def drop_role(self, asked: DropRoleStatement) -> Result:
        self._require_admin(asked)
        if asked.if_exists and self._users.find_role(asked.name) is None:
            return Result(status="DROP ROLE, which does not exist")
        await self._users.drop_role(asked.name)
        return Result(status="DROP ROLE")

    async def grant_role(self, asked: GrantRoleStatement) -> Result:
        self._require_admin(asked)
        self._check_roles(asked.roles, asked.members, asked)
        for role in asked.roles:
            for member in asked.members:
                await self._users.grant_role(role, member)
        return Result(status="GRANT ROLE")

    async def revoke_role(self, asked: RevokeRoleStatement) -> Result:
        self._require_admin(asked)
        self._check_roles(asked.roles, asked.members, asked)
        for role in asked.roles:
            for member in asked.members:
                await self._users.revoke_role(role, member)
        return Result(status="REVOKE ROLE")

    async def create_token(self, asked: CreateTokenStatement) -> Result:
        self._require_self_or_admin(asked.user, asked)
        expires_ms = None if asked.expires is None else self._expiry(asked.expires, asked)
        token, text = await self._users.create_token(asked.user, expires_ms, asked.note)
        return Result(TOKEN_COLUMNS, [(token.id, text, token.user)], status=f"CREATE TOKEN {token.id}")

    async def drop_token(self, asked: DropTokenStatement) -> Result:
        own = current_principal().name
        if not sees_all(self._broker) and not any(
            token.id == asked.token_id and token.user == own for token in self._users.tokens()
        ):
            message = f"{own!r} has no token of this id, and may not drop those of others"
            raise denial(message, "administer", "", _place(asked))
        await self._users.drop_token(asked.token_id)
        return Result(status="DROP TOKEN")

    async def grant(self, asked: GrantStatement) -> Result:
        self._require_may_grant(asked.resources)

        def check() -> None:
            for resource in asked.resources:
                self._check_exists(resource, is_new="create" in asked.operations)
            for principal in asked.principals:
                self._check_member(principal, asked)

        check()
        grants = [
            Grant(principal=principal, operation=operation, kind=found.kind, name=found.name, pattern=found.pattern)
            for found in map(self._found, asked.resources)
            for operation in asked.operations
            for principal in asked.principals
        ]
        before = len(self._grants)
        await self._grants.add(grants, check)
        return Result(status="GRANT", affected=max(0, len(self._grants) - before))

    async def revoke(self, asked: RevokeStatement) -> Result:
        """Remove grants. Of one of `ALL` on the same resource the other operations are left."""
        self._require_may_grant(asked.resources)
        named = {(one.kind, one.name, one.pattern) for one in (*asked.resources, *map(self._found, asked.resources))}
        revoked = set(asked.operations)
        for principal in asked.principals:
            if not self._grants.of(principal):
                self._check_member(principal, asked)

        def is_meant(one: Grant) -> bool:
            return one.principal in asked.principals and (one.kind, one.name, one.pattern) in named and not one.is_denied

        if "all" in revoked:
            return _revoked(await self._grants.remove(is_meant))
        wholes = [one for one in self._grants if is_meant(one) and one.operation == "all" and revoked != {"admin"}]
        await self._grants.add(
            msgspec.structs.replace(whole, operation=operation)
            for whole in wholes
            for operation in sorted(OPERATIONS_ON[whole.kind] - {"all", "admin"} - revoked)
        )
        removed = await self._grants.remove(lambda one: is_meant(one) and (one.operation in revoked or one in wholes))
        return _revoked(removed)

    async def alter_quota(self, asked: AlterQuotaStatement) -> Result:
        self._permissions.require("alter_configs", "cluster")
        await self._broker.quotas.alter(QuotaEntity(asked.user, asked.client_id), dict(asked.quotas))
        return Result(status=asked.text)

    async def show_grants(self, asked: ShowGrantsStatement) -> Result:
        if asked.principal is None:
            found: Sequence[Grant] = visible_grants(self._broker)
        else:
            if asked.principal != current_principal().name and not sees_all(self._broker):
                message = f"{current_principal().name!r} may not see the grants of {asked.principal!r}; ask an administrator"
                raise denial(message, "administer", "", _place(asked))
            found = self._grants_for(asked)
        return Result(GRANT_COLUMNS, [grant_row(one) for one in found], status=f"SHOW GRANTS {len(found)}")

    def _grants_for(self, asked: ShowGrantsStatement) -> Sequence[Grant]:
        name = asked.principal or EVERYBODY
        if name == EVERYBODY:
            return self._grants.of(EVERYBODY)
        if self._users.find_role(name) is not None:
            return grants_of(self._broker, Principal("", roles=(name,)))
        if name != current_principal().name:
            self._check_member(name, asked)
        return grants_of(self._broker, Principal(name))

    def _require_admin(self, asked: Statement) -> None:
        if not sees_all(self._broker):
            message = f"{current_principal().name!r} is no administrator; ask one, or have one GRANT admin TO you"
            raise denial(message, "administer", "", _place(asked))

    def _require_self_or_admin(self, name: str, asked: Statement) -> None:
        if name != current_principal().name or self._users.find(name) is None:
            self._require_admin(asked)

    def _require_may_grant(self, resources: Iterable[GrantedResource]) -> None:
        if sees_all(self._broker):
            return
        for one in resources:
            if not self._may_grant(self._found(one)):
                message = (
                    f"{current_principal().name!r} may not grant or revoke what is on {one.name!r}; it takes the role admin, or"
                    " ADMIN on it"
                )
                raise denial(message, "admin", f"{one.kind} {one.name}", one.position)

    def _may_grant(self, resource: GrantedResource) -> bool:
        if resource.pattern == "literal" and resource.name != ANY_NAME:
            return self._permissions.may("admin", resource.kind, resource.name)
        # Of many names it takes ADMIN on at least all of them, and no denial on any.
        of_kind = [one for one in grants_of(self._broker, current_principal()) if one.kind == resource.kind]
        if any(one.is_denied and one.operation in ("all", "admin") for one in of_kind):
            return False
        return any(one.operation == "admin" and not one.is_denied and _covers(one, resource) for one in of_kind)

    def _check_roles(self, roles: Sequence[str], members: Sequence[str], asked: Statement) -> None:
        """Raise before anything is changed if one of them does not exist."""
        for role in roles:
            self._users.get_role(role)
        for member in members:
            self._check_member(member, asked)

    def _check_member(self, name: str, asked: Statement) -> None:
        users = self._users
        if name == EVERYBODY or users.find(name) is not None or users.find_role(name) is not None:
            return
        if not sees_all(self._broker):
            raise UnknownUserError(f"there is no user or role {name!r}")
        known = [*(user.name for user in users), *(role.name for role in users.roles())]
        raise UnknownUserError(
            f"there is no user or role {name!r}{did_you_mean(name, known)}; CREATE USER without a password makes one for the"
            " owner of a certificate or token"
        )

    def _found(self, resource: GrantedResource) -> GrantedResource:
        """Return the resource with the name that it has: topics are also called by their aliases, tables in any case."""
        if resource.pattern != "literal" or resource.name == ANY_NAME:
            return resource
        found = self._find(resource)
        return resource if found is None else resource._replace(name=found)

    def _find(self, resource: GrantedResource) -> str | None:
        broker, name = self._broker, resource.name
        if resource.kind == "table":
            found = broker.tables.find(name) or broker.views.find(name)
            captured = broker.sources.find_table(name)
            return found.name if found is not None else None if captured is None else captured.table.name
        if resource.kind == "topic":
            live = broker.topics.find_folded(name)
            return None if live is None or live.is_reserved else live.topic.name
        if resource.kind == "source":
            source = broker.sources.find(name)
            return None if source is None else source.name
        return name

    def _check_exists(self, resource: GrantedResource, *, is_new: bool) -> None:
        """Raise if there is nothing of this name. What may be created, or begins to exist by its use, need not exist."""
        if resource.pattern != "literal" or resource.name == ANY_NAME or resource.kind in _LIVE_BY_USE:
            return
        if is_new or self._find(resource) is not None:
            return
        known: Iterable[str] = tables_and_topics(self._broker)
        if resource.kind == "source":
            known = [source.name for source in self._broker.sources.visible()]
        raise SqlError(
            f"there is no {resource.kind} {resource.name!r}{did_you_mean(resource.name, known)}; what will exist later is"
            f" granted with CREATE, or by ON {resource.kind.upper()} PREFIX 'beginning of names'",
            *resource.position,
            sqlstate="42704",
        )

    def _expiry(self, text: str, asked: Statement) -> int:
        """Return when a token expires, from an interval from now or a time."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        try:
            end = read_text(text, TIMESTAMPTZ)
        except AnalysisError:
            try:
                length = read_interval(text)
                days = length.months * _DAYS_OF_MONTH + length.days
                end = now + timedelta(days=days, microseconds=length.microseconds)
            except (AnalysisError, OverflowError):
                end = None
        if not isinstance(end, datetime):
            raise SqlError(f"{text[:64]!r} is no interval such as '30 days', and no time such as '2030-01-31'", *_place(asked))
        expires = end if end.tzinfo is not None else end.replace(tzinfo=UTC)
        if expires <= now:
            raise SqlError(
                f"the token would have expired at {expires:%Y-%m-%d %H:%M:%S} UTC; choose a later time", *_place(asked)
            )
        return round(expires.timestamp() * 1000)


def _covers(grant: Grant, resource: GrantedResource) -> bool:
    """Return whether a grant is on all names that a resource stands for."""
    if grant.pattern == "literal" and grant.name == ANY_NAME:
        return True
    if resource.pattern == "literal":
        return False
    if grant.pattern == "prefixed":
        return resource.pattern == "prefixed" and resource.name.startswith(grant.name)
    return grant.pattern == resource.pattern and grant.name == resource.name


def _revoked(removed: Sequence[Grant]) -> Result:
    status = "REVOKE" if removed else "REVOKE, nothing of it was granted"
    return Result(status=status, affected=len(removed))


def _place(asked: Statement) -> tuple[int, int]:
    return asked.line, asked.column
