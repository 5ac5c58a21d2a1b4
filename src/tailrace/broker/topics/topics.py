"""Creates, grows, alters and deletes topics.

Changes are made one after another, because each is checked against all existing topics. A change becomes visible when its
commit is durable, and a deletion when it is decided.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

import msgspec
from msgspec import UNSET, UnsetType

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.security.permissions import Permissions
from tailrace.broker.security.principals import current_principal
from tailrace.broker.topics.patterns import NO_TOPIC_ID, PatternTopics
from tailrace.broker.topics.registry import LiveTopic, TopicRegistry, read_only_topic_error
from tailrace.broker.turns import Turns
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import (
    InvalidPartitionsError,
    LimitExceededError,
    ReservedTopicError,
    TopicExistsError,
)
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import check_topic_name, is_pattern_topic, is_reserved
from tailrace.model.security import Operation, Principal
from tailrace.model.topic import NO_OPTIONS, Topic, TopicOptions, TopicSettings, check_settings, differences, with_options
from tailrace.store.contract import Store

T = TypeVar("T")
OnDeleted = Callable[[PartitionId], None]
CheckDroppable = Callable[[TopicId], None]
"""Raises if something still needs the topic."""
CheckFree = Callable[[str], None]
"""Raises if something else than a topic has this name."""
Puts = Sequence[tuple[bytes, bytes | None]]

_READING: tuple[Operation, ...] = ("consume", "describe")


class DependentDeletion(Protocol):
    """Something that needs a topic and is deleted in the same commit. Its `decide` raises if something else needs the topic."""

    def decide(self) -> Changes | None: ...
    def settled(self, receipt: CommitReceipt | None) -> object: ...
    def failed(self) -> None: ...


class Topics(TopicRegistry):
    """All topics, and how they change."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        limits: Limits,
        permissions: Permissions,
        on_deleted: OnDeleted,
        check_droppable: CheckDroppable = lambda _: None,
        check_free: CheckFree = lambda _: None,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        super().__init__(store, limits)
        self.patterns = PatternTopics(store, limits)
        """Patterns that Kafka clients read as topics."""
        self._committer = committer
        self._clock = clock
        self.permissions = permissions
        self._on_deleted = on_deleted
        self._check_droppable = check_droppable
        self._check_not_taken = check_free
        self._new_uuid = new_uuid
        self._turns = Turns()
        permissions.observers.append(self._rights_changed)

    def load(self) -> None:
        """Read the topics from the store."""
        super().load()
        self.patterns.load()

    def require(self, operation: Operation, name: str) -> None:
        """Raise `TopicForbiddenError` unless the principal of the request may do this to the topic of this name or alias.

        Whether the topic exists makes no difference. Everybody may read a pattern: what is read is checked topic by topic.
        """
        if self.permissions.is_on and not self.allows(current_principal(), operation, name):
            raise self.permissions.refusal(current_principal(), operation, "topic", name)

    def may(self, operation: Operation, name: str) -> bool:
        """Return whether the principal of the request may do this to the topic of this name or alias."""
        return not self.permissions.is_on or self.allows(current_principal(), operation, name)

    def allows(self, principal: Principal, operation: Operation, name: str) -> bool:
        """Return whether a principal may do this to the topic of this name or alias."""
        live = self._by_name.get(name)
        if live is not None:
            name = live.topic.name
        elif operation in _READING and is_pattern_topic(name):
            return True
        return self.permissions.allows(principal, operation, "topic", name)

    def visible(self) -> Iterator[LiveTopic]:
        """Iterate over the topics that the principal of the request may describe, by name."""
        if not self.permissions.is_on:
            return iter(self)
        principal = current_principal()
        return (live for live in self if self.permissions.allows(principal, "describe", "topic", live.topic.name))

    def by_uuid(self, uuid: UUID) -> LiveTopic:
        """Return the topic with this UUID. Raises `UnknownTopicIdError`, and `ReadOnlyTopicError` for that of a pattern."""
        if uuid not in self._by_uuid and (pattern := self.patterns.by_uuid(uuid)) is not None:
            raise read_only_topic_error(pattern.topic.name)
        return super().by_uuid(uuid)

    def readable(self, name: str, uuid: UUID | None = None) -> LiveTopic:
        """Return the topic with this name or alias, or the pattern of this name, which can only be read."""
        if name not in self._by_name and (pattern := self.patterns.find(name)) is not None:
            return pattern
        return self.get(name, uuid)

    def all_readable(self) -> Iterator[LiveTopic]:
        """Iterate over the topics that are not hidden, and the patterns with offsets of groups."""
        return chain(self, self.patterns)

    def readable_by_uuid(self, uuid: UUID) -> LiveTopic:
        """Return the topic or the pattern with this UUID. Raises `UnknownTopicIdError`."""
        return self.patterns.by_uuid(uuid) or self.by_uuid(uuid)

    def readable_by_id(self, topic_id: TopicId) -> LiveTopic | None:
        """Return the topic with this internal id, or the pattern, if it has offsets of groups."""
        return self.by_id(topic_id) or self.patterns.by_id(topic_id)

    async def register_pattern(self, name: str) -> None:
        """Give the pattern a topic id, under which offsets of groups are stored, unless it has one."""
        live = self.patterns.find(name)
        if live is not None and live.topic.id == NO_TOPIC_ID:
            await self._turns.run(self._register_pattern(name))

    async def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        alias: str | None = None,
        options: TopicOptions = NO_OPTIONS,
        must_be_new: bool = False,
        by_server: bool = False,
    ) -> Topic:
        """Create a topic, or grow the one of that name. The same partition count changes nothing; a smaller one is rejected.

        Settings of an existing topic that differ are rejected, because `alter` changes them. With `must_be_new` any existing
        topic is rejected. With `by_server` the permissions of the principal do not count.
        """
        if not by_server:
            self._require_create(name, partitions, alias)
        _check_not_reserved(name, alias)
        return await self._turns.run(self._create(name, partitions, alias, options, must_be_new))

    async def create_reserved(
        self,
        name: str,
        *,
        alias: str | None = None,
        options: TopicOptions = NO_OPTIONS,
        state: Callable[[Topic], Puts] = lambda _: (),
        is_hidden: bool = False,
    ) -> Topic:
        """Create a reserved topic with one partition, and put the state that belongs to it in the same commit."""
        return await self._turns.run(self._create_new(name, 1, alias, options, state, is_hidden))

    async def reveal(self, topic_id: TopicId, state: Puts) -> Topic:
        """Make a hidden topic visible, and change the state that belongs to it in the same commit."""
        live = self._by_id[topic_id]
        return await self._turns.run(self._replace(live, msgspec.structs.replace(live.topic, is_hidden=False), state))

    async def delete_hidden(self, topic_id: TopicId, state: Puts) -> Topic:
        """Delete a hidden topic, and change the state that belongs to it in the same commit."""
        return await self._turns.run(self._delete_live(self._by_id[topic_id], state))

    async def delete_reserved(self, name: str, state: Puts = (), dependent: DependentDeletion | None = None) -> Topic:
        """Delete a reserved topic, and change the state that belongs to it in the same commit."""
        return await self._turns.run(self._delete(name, state, dependent))

    def check_name(self, name: str) -> None:
        """Raise what `create` would raise for this name."""
        self._require_create(name)
        _check_not_reserved(name)
        if name in self._by_name:
            raise TopicExistsError(f"{name!r} is the name or alias of a topic that exists")
        self._check_not_taken(name)
        check_topic_name(name, self._limits)

    def check_new(
        self, name: str, partitions: int, *, alias: str | None = None, options: TopicOptions = NO_OPTIONS
    ) -> TopicSettings:
        """Return the settings that such a new topic would have. Raises what `create` would raise."""
        self._require_create(name, partitions, alias)
        _check_not_reserved(name, alias)
        return self._check_new(name, partitions, alias, options)

    def _check_new(self, name: str, partitions: int, alias: str | None, options: TopicOptions) -> TopicSettings:
        if name in self._by_name:
            raise TopicExistsError(f"{name!r} is the name or alias of a topic that exists")
        self.check_not_hidden(name)
        self._check_not_taken(name)
        check_topic_name(name, self._limits)
        if partitions < 1:
            raise InvalidPartitionsError(f"a topic has at least 1 partition, not {partitions}")
        settings = with_options(TopicSettings(), options)
        check_settings(settings, self._limits)
        if alias == name:
            raise TopicExistsError(f"the alias {alias!r} is the topic's own name; leave it out")
        if alias is not None:
            self._check_free(alias)
        if len(self._by_id) >= self._limits.topics:
            raise LimitExceededError(
                f"there are {len(self._by_id)} topics, as many as the limit topics allows; delete one first"
            )
        self.check_room(partitions)
        return settings

    async def add_partitions(self, name: str, more: int) -> Topic:
        """Add `more` partitions to a topic, which may be named by its alias."""
        if more < 1:
            raise InvalidPartitionsError(f"at least 1 partition can be added, not {more}")
        self.require("alter", name)
        live = self.get(name)
        _check_not_reserved(live.topic.name)
        return await self._turns.run(self._add_partitions(live.topic.name, more))

    async def alter(self, name: str, options: TopicOptions = NO_OPTIONS, *, alias: str | UnsetType | None = UNSET) -> Topic:
        """Change the given settings, and the alias if one is given; None removes the alias."""
        self._require_alter(name, alias)
        return await self._turns.run(self._alter(name, options, alias))

    async def delete(self, name: str, dependent: DependentDeletion | None = None) -> Topic:
        """Delete the topic with its records, committed offsets and all other state that belongs to it."""
        self.require("drop", name)
        _check_not_reserved(self.get(name).topic.name)
        return await self._turns.run(self._delete(name, dependent=dependent))

    def _rights_changed(self) -> None:
        self.version += 1

    def _require_create(self, name: str, partitions: int = 1, alias: str | None = None) -> None:
        """Check the right to create a topic, or to grow the one of this name. An alias needs the right to create its name."""
        if not self.permissions.is_on:
            return
        if not self.permissions.may("create", "cluster"):
            self.permissions.require("create", "topic", name)
            if alias is not None:
                self.permissions.require("create", "topic", alias)
        live = self._by_name.get(name)
        if live is not None and partitions > live.topic.partitions:
            self.require("alter", name)

    def _require_alter(self, name: str, alias: str | UnsetType | None) -> None:
        """Check the right to change settings: `alter`, or `alter_configs`, which Kafka's tools ask for."""
        if not self.permissions.is_on:
            return
        if not self.may("alter", name):
            self.require("alter_configs", name)
        if isinstance(alias, str) and not self.permissions.may("create", "cluster"):
            self.permissions.require("create", "topic", alias)

    async def run_alone(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change of something that shares the names of topics while no topic changes."""
        return await self._turns.run(change)

    def check_alias(self, name: str) -> None:
        """Raise if the name can't be that of something new: it is not valid, or it is taken."""
        self._check_free(name)

    async def _create(self, name: str, partitions: int, alias: str | None, options: TopicOptions, must_be_new: bool) -> Topic:
        if partitions < 1:
            raise InvalidPartitionsError(f"a topic has at least 1 partition, not {partitions}")
        live = self._by_name.get(name)
        if live is None or must_be_new:
            return await self._create_new(name, partitions, alias, options)
        topic = live.topic
        if topic.name != name:
            raise TopicExistsError(f"{name!r} is the alias of topic {topic.name!r}; choose another name")
        wrong = differences(topic.settings, options)
        if alias is not None and alias != topic.alias:
            wrong.append(f"alias is {topic.alias!r}, not {alias!r}")
        if wrong:
            raise TopicExistsError(
                f"topic {name!r} exists and differs: {'; '.join(wrong)}. Alter it, or leave these settings out"
            )
        if partitions < topic.partitions:
            raise InvalidPartitionsError(
                f"topic {name!r} has {topic.partitions} partitions and can't shrink to {partitions};"
                " delete and create it again if its records are not needed"
            )
        if partitions == topic.partitions:
            return topic
        _check_not_reserved(topic.name)
        self.check_room(partitions - topic.partitions)
        return await self._replace(live, msgspec.structs.replace(topic, partitions=partitions))

    async def _add_partitions(self, name: str, more: int) -> Topic:
        live = self.get(name)
        self.check_room(more)
        return await self._replace(live, msgspec.structs.replace(live.topic, partitions=live.topic.partitions + more))

    async def _create_new(
        self,
        name: str,
        partitions: int,
        alias: str | None,
        options: TopicOptions,
        state: Callable[[Topic], Puts] = lambda _: (),
        is_hidden: bool = False,
    ) -> Topic:
        settings = self._check_new(name, partitions, alias, options)
        topic = Topic(
            id=TopicId(int.from_bytes(self._store.latest(keys.LAST_TOPIC_ID) or b"") + 1),
            uuid=self._new_uuid(),
            name=name,
            alias=alias,
            partitions=partitions,
            settings=settings,
            created_ms=self._clock.now_ms(),
            is_hidden=is_hidden,
        )
        changes = Changes(
            creates=((topic.id, partitions),),
            puts=(
                (keys.LAST_TOPIC_ID, topic.id.to_bytes(4)),
                (keys.topic_key(topic.id), msgspec.msgpack.encode(topic)),
                *state(topic),
            ),
        )
        await self._committer.submit(Change(lambda: changes, lambda _: self._add(LiveTopic(topic, self._limits))))
        return topic

    async def _register_pattern(self, name: str) -> None:
        live = self.patterns.find(name)
        if live is None or live.topic.id != NO_TOPIC_ID:
            return
        self.patterns.check_room()
        topic_id = TopicId(int.from_bytes(self._store.latest(keys.LAST_TOPIC_ID) or b"") + 1)
        changes = Changes(
            puts=(
                (keys.LAST_TOPIC_ID, topic_id.to_bytes(4)),
                (keys.pattern_topic_key(topic_id), live.topic.name.encode()),
            )
        )
        await self._committer.submit(Change(lambda: changes, lambda _: self.patterns.registered(live, topic_id)))

    async def remove_patterns(self, is_used: Callable[[TopicId], bool]) -> None:
        """Remove the topic ids of patterns that nobody uses. Called at the start, before anything is committed."""
        unused = [live.topic.id for live in self.patterns if not is_used(live.topic.id)]
        if unused:
            changes = Changes(puts=tuple((keys.pattern_topic_key(topic_id), None) for topic_id in unused))

            def settled(_: CommitReceipt | None) -> None:
                for topic_id in unused:
                    self.patterns.removed(topic_id)

            await self._committer.submit(Change(lambda: changes, settled))

    def check_altered(self, name: str, options: TopicOptions, *, alias: str | UnsetType | None = UNSET) -> Topic:
        """Return the topic as `alter` would leave it. Raises what `alter` would raise."""
        self._require_alter(name, alias)
        return self._altered(name, options, alias)

    def _altered(self, name: str, options: TopicOptions, alias: str | UnsetType | None) -> Topic:
        topic = self.get(name).topic
        settings = with_options(topic.settings, options)
        check_settings(settings, self._limits)
        if alias is UNSET:
            alias = topic.alias
        if is_reserved(topic.name):
            _check_only_retention(topic, settings, alias)
        if alias is not None and alias != topic.alias:
            self._check_free(alias)
        return msgspec.structs.replace(topic, settings=settings, alias=alias)

    async def _alter(self, name: str, options: TopicOptions, alias: str | UnsetType | None) -> Topic:
        live = self.get(name)
        altered = self._altered(name, options, alias)
        return altered if altered == live.topic else await self._replace(live, altered)

    async def _replace(self, live: LiveTopic, topic: Topic, state: Puts = ()) -> Topic:
        grown = topic.partitions > live.topic.partitions
        changes = Changes(
            creates=((topic.id, topic.partitions),) if grown else (),
            puts=((keys.topic_key(topic.id), msgspec.msgpack.encode(topic)), *state),
        )

        def settled(_: CommitReceipt | None) -> None:
            self._remove(live)
            live.become(topic, self._limits)
            self._add(live)

        await self._committer.submit(Change(lambda: changes, settled))
        return topic

    async def _delete(self, name: str, state: Puts = (), dependent: DependentDeletion | None = None) -> Topic:
        return await self._delete_live(self.get(name), state, dependent)

    async def _delete_live(self, live: LiveTopic, state: Puts = (), dependent: DependentDeletion | None = None) -> Topic:
        topic = live.topic
        changes = Changes(
            drops=(topic.id,),
            drop_prefixes=(
                keys.offsets_of_topic(topic.id),
                keys.producers_of_topic(topic.id),
                keys.open_transactions_of_topic(topic.id),
                keys.aborted_of_topic(topic.id),
                keys.dedup_of_topic(topic.id),
                keys.compactions_of_topic(topic.id),
                keys.shares_of_topic(topic.id),
                keys.redriven_of_topic(topic.id),
            ),
            puts=((keys.topic_key(topic.id), None), *state),
        )

        def decide() -> Changes:
            ending = dependent.decide() if dependent is not None else self._check_droppable(topic.id)
            # From here on the topic is invisible, so nothing is written for it after its state is dropped.
            self._remove(live)
            if ending is None:
                return changes
            return changes._replace(appends=ending.appends, puts=(*changes.puts, *ending.puts))

        def settled(receipt: CommitReceipt | None) -> None:
            if dependent is not None:
                dependent.settled(receipt)
            for partition in live.partitions:
                self._on_deleted(partition)

        def failed() -> None:
            if dependent is not None:
                dependent.failed()
            self._add(live)

        await self._committer.submit(Change(decide, settled, failed))
        return topic

    def _check_free(self, alias: str) -> None:
        check_topic_name(alias, self._limits)
        self.check_not_hidden(alias)
        self._check_not_taken(alias)
        holder = self._by_name.get(alias)
        if holder is not None:
            what = "name" if holder.topic.name == alias else "alias"
            raise TopicExistsError(f"{alias!r} is the {what} of topic {holder.topic.name!r}; choose another alias")


def _check_not_reserved(name: str, alias: str | None = None) -> None:
    for wanted in (name, alias):
        if wanted is not None and is_reserved(wanted):
            raise ReservedTopicError(
                f"{wanted!r} is a reserved name: the server creates and deletes such topics itself, with tables and routes"
            )


def _check_only_retention(topic: Topic, settings: TopicSettings, alias: str | None) -> None:
    """Raise if anything but the retention of a reserved topic changes: the server relies on the rest."""
    kept = msgspec.structs.replace(
        settings, retention_seconds=topic.settings.retention_seconds, retention_max_bytes=topic.settings.retention_max_bytes
    )
    if kept != topic.settings or alias != topic.alias:
        raise ReservedTopicError(f"{topic.name!r} is a reserved topic: only its retention can be altered")
