"""Grants as Kafka's clients see them: ACLs, by the numbers of Kafka's protocol.

Kafka has resources of four kinds. Grants on others, patterns of topics and the right to grant can't be said there, so they are
neither shown nor removed. To read a topic of changes (`_changes.app.orders`) is the right to select from its table, and shown
so: grants on tables are ACLs of those topics.
"""

from typing import NamedTuple

from tailrace.broker.security.users import Users
from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import Limits
from tailrace.model.names import topic_form
from tailrace.model.security import ANY_NAME, EVERYBODY, Grant, NamePattern, Operation, ResourceKind
from tailrace.model.table import CHANGES_PREFIX

ANY = 1
"""In a filter, every kind, operation or permission."""
MATCH = 2
"""In a filter, what concerns a resource: by its name, by the beginning of it, or because it concerns all."""
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
_TOPIC = 2
_KINDS: dict[int, ResourceKind] = {_TOPIC: "topic", 3: "group", 4: "cluster", 5: "transactional_id"}
_OPERATIONS: dict[int, Operation] = {
    2: "all",
    3: "consume",
    4: "publish",
    5: "create",
    6: "drop",
    7: "alter",
    8: "describe",
    9: "cluster_action",
    10: "describe_configs",
    11: "alter_configs",
    12: "idempotent_write",
}
_PATTERNS: dict[int, NamePattern] = {LITERAL: "literal", PREFIXED: "prefixed"}
_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_OPERATION_NUMBERS = {operation: number for number, operation in _OPERATIONS.items()}
_PATTERN_NUMBERS = {pattern: number for number, pattern in _PATTERNS.items()}
_USER, _ROLE = "User", "Role"
_ON_CHANGES: dict[Operation, Operation] = {"consume": "select", "describe": "describe"}
_OF_CHANGES: dict[Operation, Operation] = {theirs: ours for ours, theirs in _ON_CHANGES.items()}


class AclBinding(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """Which ACLs are meant. `None` is every name, principal or host."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """Raise `InvalidRequestError` if it has a number that Kafka does not know."""
        if self.pattern_type not in (ANY, MATCH, LITERAL, PREFIXED):
            raise InvalidRequestError(f"unknown pattern type {self.pattern_type}")
        if self.permission_type not in (ANY, DENY, ALLOW):
            raise InvalidRequestError(f"unknown permission type {self.permission_type}")
        if self.resource_type < ANY or self.operation < ANY:
            raise InvalidRequestError("the resource type or the operation is unknown")

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ANY, binding.resource_type)
            and self.operation in (ANY, binding.operation)
            and self.permission_type in (ANY, binding.permission_type)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self._matches_name(binding)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (ANY, MATCH, binding.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == binding.resource_name:
            return True
        if self.pattern_type != MATCH:
            return False
        if binding.pattern_type == PREFIXED:
            return self.resource_name.startswith(binding.resource_name)
        return binding.resource_name == ANY_NAME


def binding_of(grant: Grant, users: Users) -> AclBinding | None:
    """Return the ACL that a grant is, or `None` if Kafka has no such ACLs."""
    kind, name, pattern, operation = grant.kind, grant.name, grant.pattern, grant.operation
    if kind == "table" and operation in _OF_CHANGES:
        kind, operation = "topic", _OF_CHANGES[operation]
        if pattern == "literal" and name == ANY_NAME:
            name, pattern = CHANGES_PREFIX, "prefixed"
        else:
            name = CHANGES_PREFIX + topic_form(name)
    if kind not in _KIND_NUMBERS or pattern not in _PATTERN_NUMBERS or operation not in _OPERATION_NUMBERS:
        return None
    return AclBinding(
        _KIND_NUMBERS[kind],
        name,
        _PATTERN_NUMBERS[pattern],
        f"{_ROLE if users.find_role(grant.principal) is not None else _USER}:{grant.principal}",
        grant.host,
        _OPERATION_NUMBERS[operation],
        DENY if grant.is_denied else ALLOW,
    )


def grant_of(binding: AclBinding, users: Users, limits: Limits) -> Grant:
    """Return the grant that an ACL is. Raises `InvalidRequestError` if there can be no such grant."""
    kind = _KINDS.get(binding.resource_type)
    operation = _OPERATIONS.get(binding.operation)
    pattern = _PATTERNS.get(binding.pattern_type)
    if kind is None:
        raise InvalidRequestError(
            f"resource type {binding.resource_type} has no ACLs here; there are topics, groups,"
            " transactional ids and the cluster"
        )
    if operation is None or pattern is None or binding.permission_type not in (DENY, ALLOW):
        raise InvalidRequestError("an ACL needs one operation, a literal or prefixed name, and ALLOW or DENY")
    if not binding.host or len(binding.host) > limits.user_name_length:
        raise InvalidRequestError(f"{binding.host[:32]!r} is no address of a client; * is for all")
    name = binding.resource_name
    if kind == "topic" and name.startswith(CHANGES_PREFIX):
        kind, operation, name, pattern = _on_changes(operation, name, pattern)
    return Grant(
        principal=_principal(binding.principal, users, limits),
        operation=operation,
        kind=kind,
        name=name,
        pattern=pattern,
        host=binding.host,
        is_denied=binding.permission_type == DENY,
    )


def _on_changes(operation: Operation, topic: str, pattern: NamePattern) -> tuple[ResourceKind, Operation, str, NamePattern]:
    """Return what an ACL of topics of changes grants on their tables."""
    if operation not in _ON_CHANGES:
        raise InvalidRequestError(f"topics of changes can be read and described; grant {operation} on their tables by SQL")
    name = topic[len(CHANGES_PREFIX) :]
    if topic_form(name) != name:
        raise InvalidRequestError(f"grant SELECT on the table whose changes are in {topic!r} by SQL, where it has its own name")
    if not name and pattern == "prefixed":
        name, pattern = ANY_NAME, "literal"
    return "table", _ON_CHANGES[operation], name, pattern


def _principal(text: str, users: Users, limits: Limits) -> str:
    kind, _, name = text.partition(":")
    if kind not in (_USER, _ROLE) or not name:
        raise InvalidRequestError(f"{text[:64]!r} is no principal; write User:NAME, Role:NAME, or User:{EVERYBODY} for all")
    if len(name.encode(errors="replace")) > limits.user_name_length:
        raise InvalidRequestError(f"the principal {text[:32]!r}... is longer than user_name_length ({limits.user_name_length})")
    if (users.find_role(name) is not None) != (kind == _ROLE):
        raise InvalidRequestError(
            f"there is no {'role' if kind == _ROLE else 'user'} {name!r}"
            + ("" if kind == _ROLE else f"; {name!r} is a role, write {_ROLE}:{name}")
        )
    return name
