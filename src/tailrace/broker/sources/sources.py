"""The definitions of sources and of their tables, kept in the store, and what their captures report.

A table of a source is defined by its capture, when the database first describes it, in one commit with the topic of its
changes. Its name is the alias of that topic. When the database describes it anew, with other columns, its schema gets one more
version, in a commit between the changes before and after it. Tables go with their source.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec

from tailrace.broker import keys
from tailrace.broker.attached_processes import AttachedProcesses
from tailrace.broker.commits import Change, Committer
from tailrace.broker.pipelines.staged_chunks import read_mark
from tailrace.broker.routes.routes import Routes
from tailrace.broker.security.grants import Grants
from tailrace.broker.topics.topics import Puts, Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import (
    LimitExceededError,
    RoutedError,
    SourceExistsError,
    SourceFencedError,
    SqlError,
    TableAlteredError,
    TableExistsError,
    UnknownSourceError,
)
from tailrace.model.ids import SourceId, TableId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import check_relation_name, is_reserved, topic_form
from tailrace.model.pipeline import NO_MARK
from tailrace.model.route import Route, RouteBlock
from tailrace.model.source import ALL_TABLES, HELD_PREFIX, POSITION, Source, SourceReport, SourceStatus, SourceTable
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import CHANGES_PREFIX, Table
from tailrace.model.topic import Topic, TopicOptions
from tailrace.store.contract import Store


class SourceDatabases(Protocol):
    """Reaches the databases of sources."""

    async def check(self, source: Source) -> Sequence[ConnectionCheck]:
        """Return what can be said of a database before it is captured."""

    async def release(self, source: Source) -> Sequence[ConnectionCheck]:
        """Stop to capture a source, and drop what was created in its database."""


class Sources:
    """All sources. Used on the event loop."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        routes: Routes,
        grants: Grants,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._permissions = topics.permissions
        self._permissions.is_captured = self._is_captured
        self._routes = routes
        self._grants = grants
        self._clock = clock
        self._limits = limits
        self._by_name: dict[str, Source] = {}
        self._tables: dict[str, SourceTable] = {}
        self._captures = AttachedProcesses(SourceReport, clock, limits.source_silence_seconds)
        self.changed = asyncio.Event()
        """Set whenever a source is created, altered or dropped."""
        self.databases: SourceDatabases | None = None
        """Set by the server, which starts the processes that reach databases."""

    def load(self) -> None:
        """Read the definitions from the store."""
        for _, value in self._store.range(keys.SOURCES):
            source = msgspec.msgpack.decode(value, type=Source)
            self._by_name[source.name.lower()] = source
        for _, value in self._store.range(keys.SOURCE_TABLES):
            table = msgspec.msgpack.decode(value, type=SourceTable)
            self._tables[table.table.name.lower()] = table

    async def drop_unfinished(self) -> None:
        """Drop the tables of sources whose removal an earlier run of the server did not finish."""
        known = {source.id for source in self}
        for table in [table for table in self._tables.values() if table.source not in known]:
            await self._drop_table(table)

    def __iter__(self) -> Iterator[Source]:
        return iter(sorted(self._by_name.values(), key=lambda source: source.name))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Source | None:
        return self._by_name.get(name.lower())

    def get(self, name: str) -> Source:
        """Return a source to somebody who changes or captures it, which needs `alter` or `drop` on it, or `cluster_action`."""
        if not self._permissions.may("cluster_action", "cluster") and not self._permissions.may("drop", "source", name):
            self._permissions.require("alter", "source", name)
        source = self.find(name)
        if source is None:
            raise UnknownSourceError(f"there is no source {name!r}{did_you_mean(name, [one.name for one in self.visible()])}")
        return source

    def visible(self) -> list[Source]:
        """Return the sources that the principal of the request may describe, by name."""
        return [source for source in self if self._permissions.may("describe", "source", source.name)]

    def tables_of(self, source: Source) -> list[SourceTable]:
        """Return the tables of a source by name."""
        return sorted((one for one in self._tables.values() if one.source == source.id), key=lambda one: one.table.name)

    def find_table(self, name: str) -> SourceTable | None:
        return self._tables.get(name.lower())

    def check_unaltered(self, table: Table) -> None:
        """Raise `TableAlteredError` if the table was altered or dropped since, or is about to be."""
        found = self._store.latest(keys.source_table_key(table.id))
        if found is None or msgspec.msgpack.decode(found, type=SourceTable).table != table:
            raise TableAlteredError.of(table.name)

    def of_topic(self, topic_id: TopicId) -> SourceTable | None:
        """Return the table whose changes this topic holds."""
        return next((one for one in self._tables.values() if one.table.changes == topic_id), None)

    def _is_captured(self, topic: str) -> bool:
        live = self._topics.find(topic)
        return live is not None and self.of_topic(live.topic.id) is not None

    def own_topics(self, source: Source) -> set[TopicId]:
        """Return the topics that only captures of the source write: those of changes, and that of held transactions."""
        found = {one.table.changes for one in self._tables.values() if one.source == source.id}
        held = self._topics.find(HELD_PREFIX + topic_form(source.name))
        return found if held is None else found | {held.topic.id}

    def position(self, source: Source) -> int | None:
        """Return the LSN behind the last transaction in the log; `None` before the slot was created."""
        mark = read_mark(self._store.get(keys.mark_key(source.writer, POSITION)))
        return None if mark == NO_MARK else mark

    async def create(self, draft: Source) -> Source:
        """Create a source. It is captured from then on."""
        name = draft.name
        self._permissions.require("create", "source", name)
        if len(self) >= self._limits.sources:
            raise LimitExceededError(f"there are {len(self)} sources, as many as sources allows; drop one first")
        if "." in name or is_reserved(f"{name}."):
            raise SqlError(f"{name!r} can't be the name of a source; use one word that is not reserved")
        check_relation_name(f"{name}.schema.table", self._limits)
        made = draft

        def decide() -> Changes:
            nonlocal made
            self.check_new(name)
            number = int.from_bytes(self._store.latest(keys.LAST_SOURCE_ID) or b"") + 1
            made = msgspec.structs.replace(draft, id=SourceId(number), created_ms=self._clock.now_ms())
            return Changes(
                puts=(
                    (keys.LAST_SOURCE_ID, number.to_bytes(4)),
                    (keys.source_key(made.id), msgspec.msgpack.encode(made)),
                )
            )

        async def create() -> Source:
            return await self._committer.submit(Change(decide, lambda _: self._enter(made)))

        return await self._topics.run_alone(create())

    def check_new(self, name: str) -> None:
        """Raise the error that `create` would raise because of what has the name already."""
        self._permissions.require("create", "source", name)
        if self.find(name) is not None:
            raise SourceExistsError(f"source {name!r} already exists")

    async def alter(self, source: Source, replace: Callable[[Source], Source], puts: Puts = ()) -> Source:
        """Replace the latest definition of a source, in one commit with other state."""
        altered = source

        def decide() -> Changes:
            nonlocal altered
            stored = self._store.latest(keys.source_key(source.id))
            if stored is None:
                raise UnknownSourceError(f"source {source.name!r} was dropped")
            altered = replace(msgspec.msgpack.decode(stored, type=Source))
            return Changes(puts=((keys.source_key(source.id), msgspec.msgpack.encode(altered)), *puts))

        return await self._committer.submit(Change(decide, lambda _: self._enter(altered)))

    async def begin(self, source: Source, position: int, system_id: str, timeline: int) -> Source:
        """Note that the slot was created and that changes behind this position will come."""
        puts: Puts = ((keys.mark_key(source.writer, POSITION), position.to_bytes(8, signed=True)),)

        def begun(now: Source) -> Source:
            # What the slot has lost is found by comparing all tables with the log.
            wanted = ALL_TABLES if now.resync else now.wanted
            return msgspec.structs.replace(now, system_id=system_id, timeline=timeline, wanted=wanted, resync=False)

        return await self.alter(source, begun, puts)

    async def want_snapshot(self, source: Source, patterns: Sequence[str]) -> Source:
        """Let the rows of the tables that these patterns name be read by the next snapshot."""
        return await self.alter(
            source, lambda now: msgspec.structs.replace(now, wanted=tuple(dict.fromkeys((*now.wanted, *patterns))))
        )

    async def want_resync(self, source: Source) -> Source:
        """Let the slot be created anew, and all tables be compared with the log."""
        return await self.alter(source, lambda now: msgspec.structs.replace(now, resync=True))

    def replaced(self, source: Source) -> None:
        """Take a definition that was stored by another commit."""
        self._enter(source)

    async def drop(self, name: str, *, cascade: bool = False) -> Source:
        """Delete a source, its tables and their changes, and what was granted on them. With `cascade`, routes from its tables
        are dropped too.
        """
        self._permissions.require("drop", "source", name)
        return await self._grants.turns.run(self._drop(name, cascade))

    async def _drop(self, name: str, cascade: bool) -> Source:
        source = self.get(name)
        tables = self.tables_of(source)
        if not cascade:
            self.check_droppable(source)
        mark = keys.mark_key(source.writer, POSITION)

        def settled(_: CommitReceipt | None) -> None:
            self._by_name.pop(source.name.lower(), None)
            self._captures.forget(source.id)
            self._grants.forget_on("source", source.name)
            self.changed.set()

        granted = self._grants.removal_on("source", source.name)
        changes = Changes(puts=((keys.source_key(source.id), None), (mark, None), *granted))
        await self._committer.submit(Change(lambda: changes, settled))
        # From here on the next start continues, because the tables have no source.
        for table in tables:
            await self._drop_table(table)
        return source

    def check_droppable(self, source: Source) -> None:
        """Raise if routes lead from tables of the source."""
        for table in self.tables_of(source):
            self._routes.check_droppable(table.table.changes)

    async def define_table(self, source: Source, draft: SourceTable) -> SourceTable:
        """Create a table of the source, or replace its definition. Its history has what changed since."""
        there = self.find_table(draft.table.name)
        if there is None:
            return await self._create_table(source, draft)
        if there.source != source.id or (there.schema, there.relation) != (draft.schema, draft.relation):
            raise TableExistsError(
                f"the tables {there.schema}.{there.relation} and {draft.schema}.{draft.relation} would both be called"
                f" {there.table.name!r}; rename one, or leave one out of the tables of source {source.name!r}"
            )
        kept = msgspec.structs.replace(
            draft.table, id=there.table.id, changes=there.table.changes, created_ms=there.table.created_ms
        )
        altered = msgspec.structs.replace(draft, source=source.id, table=kept)
        if altered == there:
            return there
        block: RouteBlock | None = None

        def decide() -> Changes:
            nonlocal block
            block = self._routes.blocking(there.table, partial(_breakage, there, altered))
            puts = [(keys.source_table_key(altered.id), msgspec.msgpack.encode(altered))]
            if block is not None:
                puts.append((keys.route_block_key(block.changes), msgspec.msgpack.encode(block)))
            return Changes(puts=tuple(puts))

        def settled(_: CommitReceipt | None) -> SourceTable:
            self._tables[altered.table.name.lower()] = altered
            if block is not None:
                self._routes.blocked(block)
            return altered

        return await self._committer.submit(Change(decide, settled))

    def attach(self, source: Source, owner: str) -> int:
        """Note that a process captures the source, and return the epoch that its requests carry."""
        return self._captures.attach(source.id, owner)

    def check_attached(self, source: Source, epoch: int) -> None:
        """Raise if another process captures the source now."""
        owner = self._captures.successor(source.id, epoch)
        if owner is not None:
            raise SourceFencedError(f"source {source.name!r} is captured by {owner} now. This process must stop")

    def report(self, source: Source, epoch: int, owner: str, report: SourceReport) -> None:
        """Take the report of the capture as a heartbeat. After a restart of the server it is the first that is heard of it."""
        self.check_attached(source, epoch)
        self._captures.report(source.id, epoch, owner, report)

    def note_exit(self, source: Source, why: str) -> None:
        """Note that the process that captures a source has ended."""
        self._captures.note_exit(source.id, why)

    def statuses(self) -> list[SourceStatus]:
        """Return the status of each source that the principal of the request may describe."""
        return [self._status(source) for source in self.visible()]

    def _status(self, source: Source) -> SourceStatus:
        report, owner, seen_ms = self._captures.status(source.id, "capture")
        return SourceStatus(
            source=source,
            state=report.state,
            owner=owner,
            seen_ms=seen_ms,
            position=self.position(source),
            tables=len(self.tables_of(source)),
            report=report,
        )

    async def _create_table(self, source: Source, draft: SourceTable) -> SourceTable:
        name = draft.table.name
        check_relation_name(name, self._limits)
        if len(self.tables_of(source)) >= self._limits.source_tables:
            raise LimitExceededError(
                f"source {source.name!r} has as many tables as source_tables allows ({self._limits.source_tables});"
                " capture fewer"
            )
        if self._topics.find(name) is not None:
            raise TableExistsError(f"{name!r} is the name or alias of a topic, so the table can't have it; rename the topic")
        made: list[SourceTable] = []

        def state(topic: Topic) -> Puts:
            table_id = TableId(int.from_bytes(self._store.latest(keys.LAST_TABLE_ID) or b"") + 1)
            table = msgspec.structs.replace(draft.table, id=table_id, changes=topic.id, created_ms=self._clock.now_ms())
            made[:] = [msgspec.structs.replace(draft, source=source.id, table=table)]
            return (
                (keys.LAST_TABLE_ID, table_id.to_bytes(4)),
                (keys.source_table_key(table_id), msgspec.msgpack.encode(made[0])),
            )

        options = TopicOptions(max_message_bytes=self._limits.largest_batch_bytes)
        alias = topic_form(name)
        await self._topics.create_reserved(CHANGES_PREFIX + alias, alias=alias, options=options, state=state)
        (table,) = made
        self._tables[name.lower()] = table
        self._permissions.forget()
        return table

    async def _drop_table(self, table: SourceTable) -> None:
        live = self._topics.by_id(table.table.changes)
        state = ((keys.source_table_key(table.id), None), *self._grants.removal_on("table", table.table.name))
        if live is not None:
            removal = self._routes.removal_of(table.table)
            await self._topics.delete_reserved(live.topic.name, state=state, dependent=removal)
            self._grants.forget_on("table", table.table.name)
        self._tables.pop(table.table.name.lower(), None)
        self._permissions.forget()

    def _enter(self, source: Source) -> Source:
        self._by_name[source.name.lower()] = source
        self.changed.set()
        return source


def _breakage(before: SourceTable, after: SourceTable, route: Route) -> str | None:
    """Return why a route can't go on with the new definition of its table; `None` if it can."""
    now = {column.name: column.type for column in after.table.columns}
    lost = [column.name for column in before.table.columns if now.get(column.name) != column.type]
    used = [name for name in lost if name in route.sql.columns]
    if used:
        return f"column {', '.join(map(repr, used))} was dropped, renamed or retyped"
    if before.identity == "full" and after.identity != "full" and route.uses_old_rows:
        return f"the REPLICA IDENTITY was changed to {after.identity.upper()}, so old rows are not known any more"
    return None


def check_old_rows(table: SourceTable, columns: Collection[str], *, needs_all: bool) -> None:
    """Raise if PostgreSQL does not log what a route needs of rows before a change: these columns, or all."""
    if table.identity == "full":
        return
    unknown = sorted(set(columns).difference(table.table.primary_key))
    if unknown or needs_all:
        what = f"OLD.{unknown[0]}" if unknown else "the whole row before an update, for its payload 'diff'"
        relation = f"{table.schema}.{table.relation}"
        raise RoutedError(
            f"the route needs {what}, and PostgreSQL logs no more than the key of old rows of {relation} (its REPLICA IDENTITY"
            f" is {table.identity.upper()}). Run there: ALTER TABLE {relation} REPLICA IDENTITY FULL; then add the route again"
        )
