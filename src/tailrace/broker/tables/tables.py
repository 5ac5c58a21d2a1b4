"""The definitions of tables, kept in the store, each with the topic that holds its changes.

A table and its change topic are created in one commit and dropped in one. The table's name is the alias of the topic, so no
other topic can have it. A change of the definition is a commit between the changes of rows: those before it have the old shape,
those after it the new one. The rows are kept by `sql.tables`.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.security.grants import Grants
from tailrace.broker.tables.enum_types import EnumTypes
from tailrace.broker.topics.topics import DependentDeletion, Puts, Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import ReservedTopicError, SqlError, TableAlteredError, TableExistsError, UnknownTableError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import check_relation_name, is_reserved, topic_form
from tailrace.model.table import CHANGES_PREFIX, Column, Table
from tailrace.model.topic import Topic, TopicOptions
from tailrace.store.contract import Store


class TableDefinitions:
    def __init__(
        self, store: Store, committer: Committer, topics: Topics, grants: Grants, clock: Clock, limits: Limits
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._grants = grants
        self._clock = clock
        self._limits = limits
        self.types = EnumTypes(store, committer, clock)
        self._by_name: dict[str, Table] = {}
        self._by_topic: dict[TopicId, Table] = {}
        self._filling: dict[TableId, Table] = {}

    def load(self) -> None:
        """Read the definitions from the store, and those of the types that their columns have."""
        self.types.load()
        for _, value in self._store.range(keys.TABLES):
            self._enter(self.types.with_labels(msgspec.msgpack.decode(value, type=Table)))

    def __iter__(self) -> Iterator[Table]:
        return iter(sorted(self._by_name.values(), key=lambda table: table.name))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Table | None:
        return self._by_name.get(name.lower())

    def get(self, name: str) -> Table:
        table = self.find(name)
        if table is None:
            raise UnknownTableError(f"there is no table {name!r}")
        return table

    def is_dropped(self, table: Table) -> bool:
        """Return whether it is dropped, or about to be."""
        return self._store.latest(keys.table_key(table.id)) is None

    def of_topic(self, topic_id: TopicId) -> Table | None:
        """Return the table whose changes this topic holds."""
        return self._by_topic.get(topic_id)

    def changes_topic(self, table: Table) -> str:
        """Return the name of the topic of a table's changes."""
        live = self._topics.by_id(table.changes)
        return CHANGES_PREFIX + topic_form(table.name) if live is None else live.topic.name

    async def create(self, name: str, columns: Sequence[Column], primary_key: Sequence[str]) -> Table:
        """Create a table of these columns; see `create_as`."""
        draft = Table(
            id=TableId(0), name=name, columns=tuple(columns), primary_key=tuple(primary_key), changes=TopicId(0), created_ms=0
        )
        return await self.create_as(draft)

    async def create_as(self, draft: Table) -> Table:
        """Create the table and its change topic in one commit. The definition must be checked already.

        One that is filled first (`is_filling`) is found by nobody before `reveal`, and its name is taken.
        """
        name = draft.name
        if is_reserved(name):
            raise ReservedTopicError(f"{name!r} is reserved for the server; give the table another namespace")
        check_relation_name(name, self._limits)
        there = self.find(name)
        if there is not None:
            raise TableExistsError(f"table {there.name!r} already exists")
        if any(table.name.lower() == name.lower() for table in self._filling.values()):
            raise TableExistsError(f"table {name!r} is being created")
        if self._topics.find(name) is not None:
            raise TableExistsError(f"{name!r} is the name or alias of a topic; give the table another name")
        made: list[Table] = []

        def state(topic: Topic) -> Puts:
            table = msgspec.structs.replace(
                draft,
                id=TableId(int.from_bytes(self._store.latest(keys.LAST_TABLE_ID) or b"") + 1),
                changes=topic.id,
                created_ms=self._clock.now_ms(),
            )
            made[:] = [table]
            return (
                (keys.LAST_TABLE_ID, table.id.to_bytes(4)),
                (keys.table_key(table.id), msgspec.msgpack.encode(table)),
            )

        options = TopicOptions(max_message_bytes=self._limits.largest_batch_bytes)
        # Kafka's clients can name a topic by few characters only.
        alias = topic_form(name)
        topic_name = CHANGES_PREFIX + alias
        await self._topics.create_reserved(topic_name, alias=alias, options=options, state=state, is_hidden=draft.is_filling)
        (table,) = made
        self._enter(table)
        return table

    async def reveal(self, table: Table) -> Table:
        """Make a table that was filled visible, with all its changes, in one commit."""
        shown = msgspec.structs.replace(table, is_filling=False)
        await self._topics.reveal(table.changes, ((keys.table_key(table.id), msgspec.msgpack.encode(shown)),))
        del self._filling[table.id]
        self._enter(shown)
        return shown

    async def drop_filling(self, table: Table) -> Table:
        """Delete a table that is still being filled."""
        await self._topics.delete_hidden(table.changes, _removal(table))
        del self._filling[table.id]
        del self._by_topic[table.changes]
        return table

    async def drop_unfinished(self) -> None:
        """Delete the tables that an earlier run of the server did not finish filling."""
        for table in list(self._filling.values()):
            await self.drop_filling(table)

    async def drop(self, name: str, dependent: DependentDeletion | None = None) -> Table:
        """Delete the definition, the change topic with all changes, the checkpoints of the rows, and the table's grants."""

        async def change() -> Table:
            table = self.get(name)
            state = (*_removal(table), *self._grants.removal_on("table", table.name))
            await self._topics.delete_reserved(self.changes_topic(table), state=state, dependent=dependent)
            del self._by_name[table.name.lower()]
            del self._by_topic[table.changes]
            self._grants.forget_on("table", table.name)
            return table

        return await self._grants.turns.run(change())

    async def add_label(self, name: str, label: str, neighbor: str | None, *, is_after: bool) -> list[tuple[Table, Table]]:
        """Add a label to an enum, and return the tables that use it, as they were and as they are now."""
        await self.types.add_label(name, label, neighbor, is_after=is_after)
        changed = [(table, self.types.with_labels(table)) for table in self if self.types.uses(table, name)]
        for _, table in changed:
            self._enter(table)
        return changed

    async def drop_type(self, name: str) -> list[tuple[Table, Table]]:
        """Drop an enum that no table uses."""
        users = [table.name for table in self if self.types.uses(table, name)]
        if users:
            raise SqlError(f"cannot drop type {name!r} because tables use it: {', '.join(users[:10])}", sqlstate="2BP01")
        await self.types.drop(name)
        return []

    async def alter(self, table: Table, altered: Table, check: Callable[[], None]) -> Table:
        """Replace the definition of a table. `check` raises if something still needs what the table has now."""

        def decide() -> Changes:
            self.check_unaltered(table)
            check()
            return Changes(puts=((keys.table_key(table.id), msgspec.msgpack.encode(altered)),))

        def settled(_: CommitReceipt | None) -> Table:
            self._enter(altered)
            return altered

        return await self._committer.submit(Change(decide, settled))

    def check_unaltered(self, table: Table) -> None:
        """Raise `TableAlteredError` if the table was altered or dropped since, or is about to be."""
        found = self._store.latest(keys.table_key(table.id))
        if found is None or msgspec.msgpack.decode(found, type=Table).schema_version != table.schema_version:
            raise TableAlteredError.of(table.name)

    def _enter(self, table: Table) -> None:
        self._by_topic[table.changes] = table
        if table.is_filling:
            self._filling[table.id] = table
        else:
            # SQLite, which keeps the rows, ignores the case of names.
            self._by_name[table.name.lower()] = table


def _removal(table: Table) -> Puts:
    """Return the changes of state that remove a table."""
    return (
        (keys.table_key(table.id), None),
        (keys.checkpoint_key(table.id), None),
        (keys.unfinished_checkpoint_key(table.id), None),
        (keys.identity_numbers_key(table.id), None),
    )
