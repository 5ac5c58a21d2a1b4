"""What principals may do: the checks that rules make before they act.

Who is not granted an operation may not do it, a denial wins over every permission, and members of the role `admin` may do
everything. With authentication off everybody may do everything, and grants have no effect.

A topic of changes (`_changes.app.orders`) has no grants of its own: to read it needs `select` on its table. Who runs the
capture of a source, for which it needs `alter` on the source, may also read what the capture writes.
"""

from collections.abc import Callable, Iterable

from tailrace.broker.security.grants import Grants, spelled_alike
from tailrace.broker.security.principals import current_principal
from tailrace.broker.security.users import Users
from tailrace.model.errors import ForbiddenError, GroupForbiddenError, TopicForbiddenError, TransactionalIdForbiddenError
from tailrace.model.limits import Limits
from tailrace.model.names import TopicPattern, is_reserved, parse_pattern
from tailrace.model.security import (
    ADMIN_ROLE,
    ANY_HOST,
    ANY_NAME,
    CLUSTER,
    IMPLIED_BY,
    Grant,
    Operation,
    Principal,
    ResourceKind,
)
from tailrace.model.source import HELD_PREFIX
from tailrace.model.table import CHANGES_PREFIX

_MAX_REMEMBERED = 100_000
_WHOLE = frozenset(("all", "admin"))
_ADMIN = frozenset(("admin",))
_READING = frozenset(("consume", "describe", "describe_configs"))
_ERRORS: dict[ResourceKind, type[ForbiddenError]] = {
    "topic": TopicForbiddenError,
    "group": GroupForbiddenError,
    "queue": GroupForbiddenError,
    "transactional_id": TransactionalIdForbiddenError,
}


class Permissions:
    """Decides by the grants. Used on the event loop: a thread might remember what has just been revoked."""

    def __init__(self, users: Users, grants: Grants, limits: Limits, *, is_on: bool) -> None:
        self.is_on = is_on
        """Whether principals are authenticated, and grants count."""
        self._users = users
        self._grants = grants
        self._limits = limits
        self._patterns: dict[str, TopicPattern] = {}
        self._remembered: dict[tuple[Principal, Operation, ResourceKind, str], bool] = {}
        self.observers: list[Callable[[], None]] = []
        """Called whenever somebody's rights may have changed."""
        self.on_denial: Callable[[Principal, str, str], None] = lambda principal, what, resource: None
        """Called with who was denied what, for the audit."""
        self.is_captured: Callable[[str], bool] = lambda topic: False
        """Returns whether a topic has the changes of a table of a source. Whoever sets it calls `forget` when that changes."""
        users.observers.append(self._changed)
        grants.observers.append(self._changed)

    def require(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> None:
        """Raise `ForbiddenError` unless the principal of the request may do this."""
        if self.is_on and not self.allows(current_principal(), operation, kind, name):
            raise self.refusal(current_principal(), operation, kind, name)

    def may(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> bool:
        """Return whether the principal of the request may do this."""
        return not self.is_on or self.allows(current_principal(), operation, kind, name)

    def require_publish_somewhere(self) -> None:
        """Raise `ForbiddenError` unless the principal may publish to a topic, whichever, or has `idempotent_write`."""
        principal = current_principal()
        if not self.is_on or self.allows(principal, "idempotent_write", "cluster", CLUSTER):
            return
        asked: tuple[Principal, Operation, ResourceKind, str] = (principal, "idempotent_write", "topic", ANY_NAME)
        known = self._remembered.get(asked)
        if known is None:
            known = self._remembered[asked] = self._may_publish_somewhere(principal)
        if not known:
            raise self.refusal(principal, "idempotent_write", "cluster", CLUSTER)

    def describer(self) -> Callable[[ResourceKind, str], bool]:
        """Return what tells in any thread whether the principal of the request may describe a resource."""
        principal = current_principal()
        known: dict[tuple[ResourceKind, str], bool] = {}

        def may(kind: ResourceKind, name: str) -> bool:
            if (kind, name) not in known:
                known[kind, name] = not self.is_on or principal.is_server or self._decide(principal, "describe", kind, name)
            return known[kind, name]

        return may

    def require_admin(self) -> None:
        """Raise `ForbiddenError` unless the principal of the request may do everything."""
        if self.is_on and not self.is_admin(current_principal()):
            self.on_denial(current_principal(), "administer", "")
            raise ForbiddenError(f"{current_principal().name!r} is no administrator; ask one, or have one GRANT admin TO you")

    def refusal(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> ForbiddenError:
        """Return the error for what a principal may not do, and note it in the audit."""
        self.on_denial(principal, operation, kind if kind == "cluster" else f"{kind} {name}")
        return forbidden(principal, operation, kind, name)

    def is_admin(self, principal: Principal) -> bool:
        return principal.is_server or ADMIN_ROLE in self._users.names_of(principal)

    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Return whether a principal may do an operation on the resource of a name, which need not exist."""
        if not self.is_on or principal.is_server:
            return True
        asked = (principal, operation, kind, name)
        known = self._remembered.get(asked)
        if known is None:
            known = self._decide(principal, operation, kind, name)
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[asked] = known
        return known

    def _decide(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        names = self._users.names_of(principal)
        if ADMIN_ROLE in names:
            return True
        source = self._source_of(name) if kind == "topic" and operation in _READING else None
        if kind == "topic" and name.startswith(CHANGES_PREFIX):
            if operation not in _READING:
                return False
            operation, kind = ("select" if operation == "consume" else "describe"), "table"
            name = name[len(CHANGES_PREFIX) :].lower()
        else:
            name = spelled_alike(kind, name)
        verdict = self._verdict(principal, names, operation, kind, name)
        if verdict is None and source is not None:
            verdict = self._verdict(principal, names, "alter", "source", source)
        return bool(verdict)

    def _verdict(
        self, principal: Principal, names: Iterable[str], operation: Operation, kind: ResourceKind, name: str
    ) -> bool | None:
        """Return what the grants to these names say; `None` if they say nothing."""
        enough = _ADMIN if operation == "admin" else _WHOLE | {operation} | IMPLIED_BY.get(operation, frozenset())
        verdict = None
        for each in names:
            for one in self._grants.of(each):
                if one.kind != kind or one.host not in (ANY_HOST, principal.host) or not self._covers(one, name):
                    continue
                if one.is_denied:
                    if one.operation in ("all", operation):
                        return False
                elif one.operation in enough:
                    verdict = True
        return verdict

    def _may_publish_somewhere(self, principal: Principal) -> bool:
        """Return whether some grant to publish is not covered as a whole by a denial."""
        found = [
            one
            for each in self._users.names_of(principal)
            for one in self._grants.of(each)
            if one.kind == "topic" and one.host in (ANY_HOST, principal.host) and one.operation in {"publish", *_WHOLE}
        ]
        denied = [one for one in found if one.is_denied and one.operation != "admin"]
        return any(not one.is_denied and not any(_covers_all(denial, one) for denial in denied) for one in found)

    def _covers(self, grant: Grant, name: str) -> bool:
        """Return whether a grant names a resource. Tables are compared by the names of their topics.

        To grant something on all topics does not mean those of the server, such as the audit. To deny it does.
        """
        if grant.pattern == "literal" and grant.name == ANY_NAME:
            return grant.is_denied or grant.kind != "topic" or not is_reserved(name)
        named = spelled_alike(grant.kind, grant.name)
        if grant.pattern == "literal":
            return named == name
        if grant.pattern == "prefixed":
            return name.startswith(named)
        pattern = self._patterns.get(grant.name)
        if pattern is None:
            pattern = self._patterns[grant.name] = parse_pattern(grant.name, self._limits)
        return pattern.matches(name)

    def _source_of(self, topic: str) -> str | None:
        """Return the source whose captures write a topic; `None` if none does."""
        if topic.startswith(HELD_PREFIX):
            return topic[len(HELD_PREFIX) :].lower()
        if topic.startswith(CHANGES_PREFIX) and self.is_captured(topic):
            return topic[len(CHANGES_PREFIX) :].split(".")[0].lower()
        return None

    def forget(self) -> None:
        """Decide anew from now on."""
        self._remembered.clear()

    def _changed(self) -> None:
        self.forget()
        for observer in self.observers:
            observer()


def _covers_all(denial: Grant, grant: Grant) -> bool:
    """Return whether a denial takes away everything that a grant names. Of patterns only equal ones are compared."""
    if (denial.name, denial.pattern) in ((grant.name, grant.pattern), (ANY_NAME, "literal")):
        return True
    return denial.pattern == "prefixed" and grant.pattern != "pattern" and grant.name.startswith(denial.name)


def forbidden(principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> ForbiddenError:
    what = "the cluster" if kind == "cluster" else f"{kind.replace('_', ' ')} {name!r}"
    return _ERRORS.get(kind, ForbiddenError)(
        f"{principal.name!r} may not {operation.replace('_', ' ')} {what}; have an administrator grant it"
    )
