"""What the principal of a request may see of users, roles, tokens, grants and quotas: administrators all, and everybody theirs.

There are no verifiers, hashes and secrets in any of it that is shown.
"""

from collections.abc import Sequence

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.model.quota import Quota, QuotaKind
from tailrace.model.security import EVERYBODY, Grant, Principal, Role, Token, User

SHOWN_EVERYBODY = "PUBLIC"
"""What SQL calls everybody."""


def sees_all(broker: Broker) -> bool:
    """Return whether the principal of the request may see what belongs to others."""
    return not broker.permissions.is_on or broker.permissions.is_admin(current_principal())


def visible_users(broker: Broker) -> Sequence[User]:
    is_all, own = sees_all(broker), current_principal().name
    return [user for user in broker.users if is_all or user.name == own]


def visible_roles(broker: Broker) -> Sequence[tuple[Role, list[str]]]:
    """Return roles with their members, of which who is no administrator sees only himself."""
    is_all, own = sees_all(broker), broker.users.names_of(current_principal())
    everybody: list[User | Role] = [*broker.users, *broker.users.roles()]
    return [
        (role, [one.name for one in everybody if role.name in one.roles and (is_all or one.name in own)])
        for role in broker.users.roles()
        if is_all or role.name in own
    ]


def visible_tokens(broker: Broker) -> Sequence[Token]:
    is_all, own = sees_all(broker), current_principal().name
    return [token for token in broker.users.tokens() if is_all or token.user == own]


def visible_grants(broker: Broker) -> Sequence[Grant]:
    """Return the grants of the principal of the request, with those of its roles and of everybody, or all."""
    if sees_all(broker):
        return list(broker.grants)
    return grants_of(broker, current_principal())


def grants_of(broker: Broker, principal: Principal) -> Sequence[Grant]:
    """Return the grants that count for a principal."""
    names = broker.users.names_of(principal)
    return [one for one in broker.grants if one.principal in names]


def visible_quotas(broker: Broker) -> Sequence[tuple[Quota, QuotaKind, float]]:
    """Return each quota by itself. Who may describe the settings of the cluster sees all, as in Kafka, and others their own."""
    is_all, own = broker.permissions.may("describe_configs", "cluster"), current_principal().name
    return [
        (quota, kind, value)
        for quota in broker.quotas
        if is_all or quota.entity.user == own
        for kind, value in sorted(quota.values.items())
    ]


def grant_row(grant: Grant) -> tuple[object, ...]:
    return (
        SHOWN_EVERYBODY if grant.principal == EVERYBODY else grant.principal,
        grant.operation,
        grant.kind,
        grant.name,
        grant.pattern,
        grant.host,
        "deny" if grant.is_denied else "allow",
    )
