"""The grants of all users and roles, kept in the store. Kafka's clients see them as ACLs."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.turns import Turns
from tailrace.model.commit import Changes
from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.limits import Limits
from tailrace.model.names import parse_pattern, topic_form, without_public
from tailrace.model.security import ANY_HOST, ANY_NAME, CLUSTER, OPERATIONS_ON, Grant, ResourceKind
from tailrace.store.contract import Store

Puts = Sequence[tuple[bytes, bytes | None]]


class Grants:
    """All grants. Changed on the event loop; `of` may be called from any thread."""

    def __init__(self, store: Store, committer: Committer, limits: Limits) -> None:
        self.turns = Turns()
        """Those of all changes of users, roles and grants."""
        self.observers: list[Callable[[], None]] = []
        """Called whenever grants have changed."""
        self.on_change: Callable[[str, str], None] = lambda what, resource: None
        """Called with what was changed, for the audit."""
        self._store = store
        self._committer = committer
        self._limits = limits
        self._by_key: dict[bytes, Grant] = {}
        self._by_principal: Mapping[str, Sequence[Grant]] = {}

    def load(self) -> None:
        """Read the grants from the store."""
        self._by_key = {key: msgspec.msgpack.decode(value, type=Grant) for key, value in self._store.range(keys.GRANTS)}
        self._sort()

    def __iter__(self) -> Iterator[Grant]:
        return iter(sorted(self._by_key.values(), key=lambda one: (one.principal, one.kind, one.name, one.operation, one.host)))

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, principal: str) -> Sequence[Grant]:
        """Return what was granted and denied to the user or role of a name, without that of its roles."""
        return self._by_principal.get(principal, ())

    async def add(self, grants: Iterable[Grant], check: Callable[[], None] = lambda: None) -> None:
        """Add grants, in one commit. One that is there already changes nothing.

        `check` raises if what they name has been dropped meanwhile.
        """

        async def change() -> None:
            check()
            new = {key: one for one in grants for key in (_key(one),) if key not in self._by_key}
            if len(self) + len(new) > self._limits.grants:
                raise LimitExceededError(
                    f"there are {len(self)} grants, and {len(new)} more are too many for the limit grants"
                    f" ({self._limits.grants}); grant to roles, or on the beginning of names"
                )
            for one in new.values():
                check_grant(one, self._limits)
            puts = [(key, msgspec.msgpack.encode(one)) for key, one in new.items()]
            await self._commit(puts, lambda: self._by_key.update(new))
            for one in new.values():
                self.on_change("grant", described(one))

        await self.turns.run(change())

    async def remove(self, matches: Callable[[Grant], bool]) -> list[Grant]:
        """Remove the grants that match, in one commit, and return them."""

        async def change() -> list[Grant]:
            found = {key: one for key, one in self._by_key.items() if matches(one)}

            def removed() -> None:
                for key in found:
                    self._by_key.pop(key, None)

            await self._commit([(key, None) for key in found], removed)
            for one in found.values():
                self.on_change("revoke", described(one))
            return list(found.values())

        return await self.turns.run(change())

    def removal_of(self, principal: str) -> Puts:
        """Return what removes the grants of a user or role in the commit that drops it."""
        return [(_key(one), None) for one in self.of(principal)]

    def forget(self, principal: str) -> None:
        """Forget the grants of a user or role that was dropped, whose commit has removed them from the store."""
        for one in self.of(principal):
            del self._by_key[_key(one)]
        self._sort()

    def removal_on(self, kind: ResourceKind, name: str) -> Puts:
        """Return what removes the grants on a table, view or source in the commit that drops it.

        Those that name more than it stay, and so do denials and the right to create it again. The drop is made in `turns`, so
        that no grant is added meanwhile.
        """
        return [(_key(one), None) for one in self._on(kind, name)]

    def forget_on(self, kind: ResourceKind, name: str) -> None:
        """Forget the grants on what was dropped, whose commit has removed them from the store."""
        found = self._on(kind, name)
        for one in found:
            del self._by_key[_key(one)]
        if found:
            self._sort()
            for observer in self.observers:
                observer()
        for one in found:
            self.on_change("revoke", described(one))

    def _on(self, kind: ResourceKind, name: str) -> Sequence[Grant]:
        spelled = spelled_alike(kind, name)
        return [
            one
            for one in self._by_key.values()
            if one.kind == kind
            and one.pattern == "literal"
            and one.name != ANY_NAME
            and not one.is_denied
            and one.operation != "create"
            and spelled_alike(kind, one.name) == spelled
        ]

    async def _commit(self, puts: Puts, done: Callable[[], None]) -> None:
        if not puts:
            return

        def settled(_: object) -> None:
            done()
            self._sort()
            for observer in self.observers:
                observer()

        await self._committer.submit(Change(lambda: Changes(puts=tuple(puts)), settled))

    def _sort(self) -> None:
        by_principal: dict[str, list[Grant]] = {}
        for one in self._by_key.values():
            by_principal.setdefault(one.principal, []).append(one)
        self._by_principal = by_principal


def spelled_alike(kind: ResourceKind, name: str) -> str:
    """Return what is the same for all ways to write the name of a table or source. Other names are written in one way."""
    if kind == "table":
        return topic_form(without_public(name)).lower()
    return topic_form(name).lower() if kind == "source" else name


def described(grant: Grant) -> str:
    """Return what a grant says, for the audit."""
    resource = grant.name if grant.pattern == "literal" else f"{grant.pattern} {grant.name}"
    host = "" if grant.host == ANY_HOST else f" from {grant.host}"
    return f"{'deny' if grant.is_denied else 'allow'} {grant.principal} {grant.operation} on {grant.kind} {resource}{host}"


def check_grant(grant: Grant, limits: Limits) -> None:
    """Raise `InvalidRequestError` unless there can be such a grant."""
    if grant.operation not in OPERATIONS_ON[grant.kind]:
        there_are = ", ".join(sorted(OPERATIONS_ON[grant.kind]))
        raise InvalidRequestError(f"there is no {grant.operation} on a {grant.kind}; there are {there_are}")
    if grant.kind == "cluster" and (grant.name, grant.pattern) != (CLUSTER, "literal"):
        raise InvalidRequestError(f"the only resource of the kind cluster is {CLUSTER!r}, not {grant.name!r}")
    if grant.pattern == "pattern":
        if grant.kind != "topic":
            raise InvalidRequestError(f"patterns name topics; name a {grant.kind} by its name or the beginning of it")
        parse_pattern(grant.name, limits)
    if not grant.name or len(grant.name.encode(errors="replace")) > limits.group_name_length:
        raise InvalidRequestError(f"{grant.name[:32]!r} can't be the name of a {grant.kind}")


def _key(grant: Grant) -> bytes:
    return keys.grant_key(hashlib.sha256(msgspec.msgpack.encode(grant)).digest())
