"""Quotas of users and clients, kept in the store, and what they have used.

What is used of a rate is taken from a **bucket**, which fills again at that rate and holds what may be used in one second. It
may be overdrawn: a request is carried out, and whoever sent it waits until the bucket has filled again, as in Kafka. The quota
of a user is for all its clients together, that of a client id for all its users, and that of both for this pair. The first of
these that there is counts, as in Kafka: user and client id, user, client id; at each step an own quota before a default one.

Nothing is looked up as long as there are no quotas.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.turns import Turns
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.errors import InvalidRequestError, LimitExceededError, QuotaExceededError, TransactionQuotaExceededError
from tailrace.model.limits import Limits
from tailrace.model.quota import COUNTED_KINDS, DEFAULT, QUOTA_KINDS, Quota, QuotaEntity, QuotaKind, check_quota
from tailrace.model.security import Principal
from tailrace.store.contract import Store

LONGEST_WAIT_SECONDS = 30.0
"""The longest wait that somebody is told at a time. What is left of it is told with the next request."""
_MAX_BUCKETS = 20_000
"""Above it the buckets that were not used for longest are forgotten."""
_MAX_RESOLVED = 20_000

QuotaChanges = Mapping[QuotaKind, float | None]
"""`None` removes the quota."""
_Place = tuple[str | None, str | None]
"""The user and the client id to which a bucket belongs."""


class _Bucket:
    """What may be used of a rate."""

    __slots__ = ("_at", "_left")

    def __init__(self, rate: float, now: float) -> None:
        self._left = rate
        self._at = now

    def take(self, amount: float, rate: float, now: float) -> float:
        """Take from the bucket, and return for how many seconds it is overdrawn."""
        self._left = min(rate, self._left + (now - self._at) * rate) - amount
        self._at = now
        return -self._left / rate if self._left < 0 else 0.0


class Quotas:
    """Used on the event loop."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, limits: Limits, turns: Turns) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._turns = turns
        self._quotas: dict[QuotaEntity, Quota] = {}
        self._resolved: dict[tuple[str, str, QuotaKind], tuple[_Place, float] | None] = {}
        self._buckets: OrderedDict[tuple[_Place, QuotaKind], _Bucket] = OrderedDict()
        self._held: dict[tuple[_Place, QuotaKind], int] = {}
        self.kinds: frozenset[QuotaKind] = frozenset()
        """Kinds of which there is any quota. Whoever charges for something looks here first."""
        self.on_change: Callable[[str, str], None] = lambda what, resource: None
        """Called with what was changed, for the audit."""
        self.throttled = dict.fromkeys(QUOTA_KINDS, 0)
        """How often somebody had to wait or was refused."""

    @property
    def is_on(self) -> bool:
        return bool(self.kinds)

    def load(self) -> None:
        """Read the quotas from the store."""
        stored = (msgspec.msgpack.decode(value, type=Quota) for _, value in self._store.range(keys.QUOTAS))
        self._quotas = {quota.entity: quota for quota in stored}
        self._changed()

    def __iter__(self) -> Iterator[Quota]:
        return iter(sorted(self._quotas.values(), key=lambda one: (one.entity.user or "", one.entity.client_id or "")))

    def get(self, entity: QuotaEntity) -> Mapping[QuotaKind, float]:
        quota = self._quotas.get(entity)
        return {} if quota is None else quota.values

    def check(self, entity: QuotaEntity, changes: QuotaChanges) -> None:
        """Raise what `alter` would raise."""
        names = [name for name in (entity.user, entity.client_id) if name is not None]
        if not names:
            raise InvalidRequestError("a quota is for a user, for a client id, or for both; name one")
        for name in names:
            if not 0 < len(name.encode(errors="replace")) <= self._limits.user_name_length:
                raise InvalidRequestError(
                    f"{name[:32]!r} is empty or has more bytes than user_name_length allows ({self._limits.user_name_length})"
                )
        for kind, value in changes.items():
            if value is not None:
                check_quota(kind, value)
            if kind in COUNTED_KINDS and entity.client_id is not None:
                raise InvalidRequestError(f"{kind} are counted for users; name a user, or {DEFAULT!r}, and no client id")
        if entity not in self._quotas and len(self._quotas) >= self._limits.quotas:
            raise LimitExceededError(
                f"there are quotas for {len(self._quotas)} users and clients, as many as quotas allows ({self._limits.quotas});"
                f" use those of {DEFAULT!r}"
            )

    async def alter(self, entity: QuotaEntity, changes: QuotaChanges) -> Quota:
        """Set and remove quotas of a user or client, and return those that it has now. Those that are not named stay."""

        async def change() -> Quota:
            self.check(entity, changes)
            values = {**self.get(entity), **changes}
            quota = Quota(entity=entity, values={kind: value for kind, value in values.items() if value is not None})
            if quota.values != self.get(entity):
                await self._put(quota)
                told = ", ".join(f"{kind} {'none' if value is None else f'{value:g}'}" for kind, value in changes.items())
                self.on_change("alter quota", f"{entity}: {told}")
            return quota

        return await self._turns.run(change())

    def charge(self, principal: Principal, client_id: str | None, kind: QuotaKind, amount: float) -> float:
        """Count what a principal has used, and return for how many seconds it must wait before it uses more."""
        if kind not in self.kinds or principal.is_server:
            return 0.0
        found = self._resolve(principal.name, client_id or "", kind)
        if found is None:
            return 0.0
        place, rate = found
        wait = min(self._bucket(place, rate, kind).take(amount, rate, self._clock.monotonic()), LONGEST_WAIT_SECONDS)
        if wait and amount:
            self.throttled[kind] += 1
        return wait

    def require(self, principal: Principal, client_id: str | None, kinds: Iterable[QuotaKind]) -> None:
        """Raise `QuotaExceededError` if the principal must wait because of what it has used of one of these rates."""
        for kind in kinds:
            if kind in self.kinds:
                wait = self.charge(principal, client_id, kind, 0)
                if wait:
                    self.throttled[kind] += 1
                    raise QuotaExceededError(
                        f"{principal.name!r} has used up its quota of {kind}; try again in {wait:.1f} seconds", wait
                    )

    def hold(self, principal: Principal, client_id: str | None, kind: QuotaKind) -> Callable[[], None]:
        """Count a connection or transaction as long as the function that is returned is not called.

        Raises `QuotaExceededError` if there are as many as may be. All are counted, also those that there is no quota for yet.
        """
        if kind not in COUNTED_KINDS or principal.is_server:
            return _nothing_held
        name, client = principal.name, client_id or ""
        found = self._resolve(name, client, kind) if kind in self.kinds else None
        places: Sequence[_Place] = ((name, client), (name, None), (None, client))
        if found is not None and self._held.get((found[0], kind), 0) >= found[1]:
            self.throttled[kind] += 1
            error = TransactionQuotaExceededError if kind == "open_transactions" else QuotaExceededError
            raise error(
                f"{name!r} has {found[1]:g} {kind.replace('_', ' ')}, as many as its quota of {kind} allows; end some first",
                1.0,
            )
        for place in places:
            self._held[place, kind] = self._held.get((place, kind), 0) + 1
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                for place in places:
                    left = self._held.pop((place, kind)) - 1
                    if left:
                        self._held[place, kind] = left

        return release

    def _resolve(self, user: str, client_id: str, kind: QuotaKind) -> tuple[_Place, float] | None:
        """Return whose bucket counts, and its rate."""
        key = user, client_id, kind
        if key in self._resolved:
            return self._resolved[key]
        found: tuple[_Place, float] | None = None
        for place, entity in (
            ((user, client_id), QuotaEntity(user, client_id)),
            ((user, client_id), QuotaEntity(user, DEFAULT)),
            ((user, None), QuotaEntity(user)),
            ((user, client_id), QuotaEntity(DEFAULT, client_id)),
            ((user, client_id), QuotaEntity(DEFAULT, DEFAULT)),
            ((user, None), QuotaEntity(DEFAULT)),
            ((None, client_id), QuotaEntity(None, client_id)),
            ((None, client_id), QuotaEntity(None, DEFAULT)),
        ):
            rate = self.get(entity).get(kind)
            if rate is not None:
                found = (place, rate)
                break
        if len(self._resolved) >= _MAX_RESOLVED:
            self._resolved.clear()
        self._resolved[key] = found
        return found

    def _bucket(self, place: _Place, rate: float, kind: QuotaKind) -> _Bucket:
        bucket = self._buckets.get((place, kind))
        if bucket is None:
            bucket = self._buckets[place, kind] = _Bucket(rate, self._clock.monotonic())
            if len(self._buckets) > _MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end((place, kind))
        return bucket

    async def _put(self, quota: Quota) -> None:
        key = keys.quota_key(hashlib.sha256(msgspec.msgpack.encode(quota.entity)).digest())
        value = msgspec.msgpack.encode(quota) if quota.values else None

        def settled(_: object) -> None:
            if quota.values:
                self._quotas[quota.entity] = quota
            else:
                self._quotas.pop(quota.entity, None)
            self._changed()

        await self._committer.submit(Change(lambda: Changes(puts=((key, value),)), settled))

    def _changed(self) -> None:
        self._resolved.clear()
        self.kinds = frozenset(kind for quota in self._quotas.values() for kind in quota.values)


def _nothing_held() -> None:
    pass
