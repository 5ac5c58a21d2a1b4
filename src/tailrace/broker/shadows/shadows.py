"""The definitions of shadows, kept in the store, and what the processes that copy them report.

The server copies nothing itself. Which records are in the target is known there alone, so nothing that a process reports is
stored. Cut-overs are in `cut_over.py`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from tailrace.broker import keys
from tailrace.broker.attached_processes import AttachedProcesses
from tailrace.broker.commits import Change, Committer, StillInFlight
from tailrace.broker.topics.topics import Topics
from tailrace.model.address import Address, parse_address
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import (
    LimitExceededError,
    ShadowExistsError,
    ShadowFencedError,
    ShadowPhaseError,
    SqlError,
    UnknownShadowError,
)
from tailrace.model.ids import ShadowId
from tailrace.model.limits import Limits
from tailrace.model.shadow import CopiedTopics, Shadow, ShadowReport, ShadowStatus
from tailrace.model.suggestions import did_you_mean
from tailrace.store.contract import Store

_NAME_LENGTH = 64
"""It is part of the names of a transactional id and of a group in the target."""


class ShadowKafkas(Protocol):
    """Reaches the Kafkas of shadows."""

    async def check(self, shadow: Shadow) -> Sequence[ConnectionCheck]:
        """Return what can be said of a Kafka before topics are copied to it, or from it."""


class Shadows:
    """All shadows. Used on the event loop."""

    def __init__(self, store: Store, committer: Committer, topics: Topics, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._permissions = topics.permissions
        self._clock = clock
        self._limits = limits
        self._by_name: dict[str, Shadow] = {}
        self._topics_of: dict[ShadowId, CopiedTopics] = {}
        self._copies = AttachedProcesses(ShadowReport, clock, limits.shadow_silence_seconds)
        self.changed = asyncio.Event()
        """Set whenever a shadow is created, altered or dropped."""
        self.own_addresses: Sequence[Address] = ()
        """Where the server's own Kafka listener is reached. Set by the server."""
        self.on_changed: Callable[[], None] = lambda: None
        """Called when a definition has changed. Set by those who fence topics."""
        self.kafkas: ShadowKafkas | None = None
        """Set by the server, which starts the processes that reach Kafkas."""

    def load(self) -> None:
        """Read the definitions from the store."""
        for _, value in self._store.range(keys.SHADOWS):
            self.enter(msgspec.msgpack.decode(value, type=Shadow))

    def __iter__(self) -> Iterator[Shadow]:
        return iter(sorted(self._by_name.values(), key=lambda shadow: shadow.name))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Shadow | None:
        return self._by_name.get(name.lower())

    def get(self, name: str) -> Shadow:
        """Return a shadow to somebody who changes or copies it, which needs `alter` on the cluster, or `cluster_action`."""
        if not self._permissions.may("cluster_action", "cluster"):
            self._permissions.require("alter", "cluster")
        shadow = self.find(name)
        if shadow is None:
            raise UnknownShadowError(f"there is no shadow {name!r}{did_you_mean(name, [one.name for one in self])}")
        return shadow

    def topics_of(self, shadow: Shadow) -> CopiedTopics:
        """Return which topics a shadow copies."""
        return self._topics_of[shadow.id]

    def check_new(self, draft: Shadow) -> None:
        """Raise the error that `create` would raise. To create a shadow needs `alter` on the cluster."""
        self._permissions.require("alter", "cluster")
        self._check_new(draft)

    def _check_new(self, draft: Shadow) -> None:
        name = draft.name
        if self.find(name) is not None:
            raise ShadowExistsError(f"shadow {name!r} already exists")
        if len(self) >= self._limits.shadows:
            raise LimitExceededError(f"there are {len(self)} shadows, as many as shadows allows; drop one first")
        if not (name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) <= _NAME_LENGTH):
            raise SqlError(
                f"{name!r} can't be the name of a shadow; use letters, digits, '_' and '-', at most {_NAME_LENGTH} of them"
            )
        self._check_patterns(draft)
        self._check_clusters(draft)

    async def create(self, draft: Shadow) -> Shadow:
        """Create a shadow. It is copied from then on."""
        self._permissions.require("alter", "cluster")
        made = draft

        def decide() -> Changes:
            nonlocal made
            self._check_new(draft)
            number = int.from_bytes(self._store.latest(keys.LAST_SHADOW_ID) or b"") + 1
            made = msgspec.structs.replace(draft, id=ShadowId(number), created_ms=self._clock.now_ms())
            return Changes(
                puts=(
                    (keys.LAST_SHADOW_ID, number.to_bytes(4)),
                    (keys.shadow_key(made.id), msgspec.msgpack.encode(made)),
                )
            )

        async def create() -> Shadow:
            return await self._committer.submit(Change(decide, lambda _: self.enter(made)))

        return await self._topics.run_alone(create())

    async def alter(self, shadow: Shadow, replace: Callable[[Shadow], Shadow]) -> Shadow:
        """Replace the latest definition of a shadow."""
        altered = shadow

        def decide() -> Changes | None:
            nonlocal altered
            now = self.latest(shadow)
            altered = replace(now)
            if altered == now:
                return None
            self._check_patterns(altered)
            self._check_clusters(altered)
            return Changes(puts=((keys.shadow_key(shadow.id), msgspec.msgpack.encode(altered)),))

        return await self._committer.submit(Change(decide, lambda _: self.enter(altered)))

    def latest(self, shadow: Shadow) -> Shadow:
        """Return the definition of a shadow, for a decision. One that is about to change is waited for."""
        key = keys.shadow_key(shadow.id)
        stored = self._store.latest(key)
        if stored != self._store.get(key):
            raise StillInFlight
        if stored is None:
            raise UnknownShadowError(f"shadow {shadow.name!r} was dropped")
        return msgspec.msgpack.decode(stored, type=Shadow)

    async def drop(self, name: str, *, force: bool = False) -> Shadow:
        """Delete a shadow. Its topics and what was copied stay; without `force` they must take records here."""
        self._permissions.require("alter", "cluster")
        shadow = self.get(name)

        def decide() -> Changes:
            now = self.latest(shadow)
            if not force and (now.phase == "fenced" or now.refuses):
                why = "a cut-over is under way" if now.phase == "fenced" else "its topics were cut over"
                raise ShadowPhaseError(
                    f"{why}, and without shadow {name!r} topics would take records here again; use DROP SHADOW {name} FORCE if"
                    " that is wanted"
                )
            return Changes(puts=((keys.shadow_key(shadow.id), None),))

        def settled(_: CommitReceipt | None) -> Shadow:
            self._by_name.pop(shadow.name.lower(), None)
            self._topics_of.pop(shadow.id, None)
            self._copies.forget(shadow.id)
            self._notify()
            return shadow

        return await self._committer.submit(Change(decide, settled))

    def enter(self, shadow: Shadow) -> Shadow:
        """Take a definition that is durable."""
        self._by_name[shadow.name.lower()] = shadow
        self._topics_of[shadow.id] = CopiedTopics(shadow, self._limits)
        self._notify()
        return shadow

    def attach(self, shadow: Shadow, owner: str) -> int:
        """Note that a process copies the shadow, and return the epoch that its requests carry."""
        return self._copies.attach(shadow.id, owner)

    def report(self, shadow: Shadow, epoch: int, owner: str, report: ShadowReport) -> None:
        """Take the report of the process that copies as a heartbeat."""
        successor = self._copies.successor(shadow.id, epoch)
        if successor is not None:
            raise ShadowFencedError(f"shadow {shadow.name!r} is copied by {successor} now. This process must stop")
        self._copies.report(shadow.id, epoch, owner, report)

    def note_exit(self, shadow: Shadow, why: str) -> None:
        """Note that the process that copies a shadow has ended."""
        self._copies.note_exit(shadow.id, why)

    def last_report(self, shadow: Shadow) -> ShadowReport | None:
        """Return what the process that copies has reported last; `None` if it was not heard of since the server was started."""
        return self._copies.last_report(shadow.id)

    def status(self, shadow: Shadow) -> ShadowStatus:
        report, owner, seen_ms = self._copies.status(shadow.id, "copy process")
        if not shadow.is_copied:
            # That nobody copies is wanted.
            report = msgspec.structs.replace(report, state="stopped", error=None, advice=None)
        return ShadowStatus(shadow=shadow, state=report.state, owner=owner, seen_ms=seen_ms, report=report)

    def statuses(self) -> list[ShadowStatus]:
        """Return the status of each shadow, or of none if the principal of the request may not describe the cluster."""
        return [self.status(shadow) for shadow in self] if self._permissions.may("describe", "cluster") else []

    def _notify(self) -> None:
        self.on_changed()
        self.changed.set()

    def _check_patterns(self, shadow: Shadow) -> None:
        """Raise unless all patterns are legal, and no more than the limit allows."""
        for what, patterns in (("topics", shadow.topics), ("groups", shadow.groups)):
            if len(patterns) > self._limits.shadow_patterns:
                raise LimitExceededError(
                    f"the shadow has {len(patterns)} patterns of {what}, more than shadow_patterns allows"
                    f" ({self._limits.shadow_patterns}); use wider ones"
                )
        CopiedTopics(shadow, self._limits)

    def _check_clusters(self, shadow: Shadow) -> None:
        """Raise if records would be copied into themselves, round in circles or twice, as far as addresses tell."""
        addresses = {parse_address(address) for address in shadow.bootstrap.split(",")}
        for address in addresses:
            if any(_is_same(address, own) for own in self.own_addresses):
                raise SqlError(f"'{address}' is this server's own Kafka listener; give the addresses of another cluster")
        topics = CopiedTopics(shadow, self._limits)
        for other in self:
            theirs = {parse_address(address) for address in other.bootstrap.split(",")}
            if other.id != shadow.id and addresses & theirs and topics.overlap(self._topics_of[other.id]):
                wrong = "twice" if other.direction == shadow.direction else "round in circles"
                raise ShadowExistsError(
                    f"shadow {other.name!r} copies {', '.join(other.topics)} {other.direction} the same Kafka, so records would"
                    f" be copied {wrong}; choose topics that are not among them"
                )


def _is_same(address: Address, own: Address) -> bool:
    """Return whether an address is that of the server itself."""
    is_everywhere = own.host in ("0.0.0.0", "::")  # noqa: S104  it is compared, not listened on
    is_here = address.host == own.host or (address.is_loopback and (own.is_loopback or is_everywhere))
    return is_here and address.port == own.port
