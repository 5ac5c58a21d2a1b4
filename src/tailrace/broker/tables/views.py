"""The definitions of views, kept in the store.

Tables, topics, aliases and views share one namespace. What a view reads is found by its id, and can't be dropped while the view
is there, unless the view is dropped in the same commit. Views are created and dropped one after another with topics, so nothing
that they need disappears meanwhile. A view can only use views that exist, and none that uses it, so there are no cycles.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.security.grants import Grants
from tailrace.broker.topics.topics import DependentDeletion, Puts, Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import (
    DependentViewsError,
    LimitExceededError,
    OverloadedError,
    ReservedTopicError,
    SqlError,
    TableExistsError,
    TopicExistsError,
    UnknownTableError,
)
from tailrace.model.ids import TopicId, ViewId
from tailrace.model.limits import Limits
from tailrace.model.names import check_relation_name, is_reserved, topic_form
from tailrace.model.view import ViewColumn, ViewDefinition, ViewSource
from tailrace.store.contract import Store

_NO_ID = ViewId(0)
_INVALID_DEFINITION = "42P16"
_RECURSION = "42P17"
_BETWEEN_LABELS = "\x1f"


class ViewDefinitions:
    """All views. Used on the event loop."""

    def __init__(
        self, store: Store, committer: Committer, topics: Topics, grants: Grants, clock: Clock, limits: Limits
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._grants = grants
        self._clock = clock
        self._limits = limits
        self._by_name: dict[str, ViewDefinition] = {}
        self._by_id: dict[ViewId, ViewDefinition] = {}

    def load(self) -> None:
        """Read the definitions from the store."""
        for _, value in self._store.range(keys.VIEWS):
            self._enter(msgspec.msgpack.decode(value, type=ViewDefinition))

    def __iter__(self) -> Iterator[ViewDefinition]:
        return iter(sorted(self._by_name.values(), key=lambda view: view.name))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> ViewDefinition | None:
        return self._by_name.get(name.lower())

    def get(self, name: str) -> ViewDefinition:
        view = self.find(name)
        if view is None:
            raise UnknownTableError(f"there is no view {name!r}")
        return view

    def by_id(self, view_id: ViewId) -> ViewDefinition | None:
        return self._by_id.get(view_id)

    def users_of(self, *, topic: TopicId | None = None, view: ViewId | None = None) -> list[ViewDefinition]:
        """Return the views that read a table or topic, or another view, themselves."""
        return [
            one
            for one in self
            if any(
                (topic is not None and source.topic == topic) or (view is not None and source.view == view)
                for source in one.sources
            )
        ]

    def check_free(self, name: str) -> None:
        """Raise if a view has this name, which nothing else can have then."""
        there = next((view for view in self if name.lower() in (view.name.lower(), topic_form(view.name).lower())), None)
        if there is not None:
            raise TableExistsError(f"{there.name!r} is the name of a view; choose another name")

    def check_droppable(self, topic_id: TopicId) -> None:
        """Raise if views read this topic, or the table whose changes it holds."""
        users = self.users_of(topic=topic_id)
        if users:
            live = self._topics.by_id(topic_id)
            name = "" if live is None else live.topic.alias or live.topic.name
            raise _depended_on(name, users)

    def check_column(self, topic_id: TopicId, column: str) -> None:
        """Raise if a view uses this column of the table whose changes the topic holds."""
        users = [
            view
            for view in self.users_of(topic=topic_id)
            if any(source.topic == topic_id and column in source.used for source in view.sources)
        ]
        if users:
            listed = ", ".join(repr(view.name) for view in users)
            raise DependentViewsError(f"column {column!r} is used by views ({listed}); drop them first")

    async def create(
        self,
        name: str,
        columns: Sequence[ViewColumn],
        text: str,
        sources: Sequence[ViewSource],
        *,
        or_replace: bool = False,
    ) -> ViewDefinition:
        """Create a view, or replace the one of that name, which must keep its columns and may get more behind them."""
        return await self._topics.run_alone(self._create(name, columns, text, sources, or_replace))

    async def drop(self, name: str, *, cascade: bool = False) -> ViewDefinition:
        """Drop a view, and with `cascade` those that use it, with the grants on them."""
        return await self._grants.turns.run(self._topics.run_alone(self._drop(name, cascade)))

    def removal_of(self, topic_id: TopicId, also: DependentDeletion) -> "ViewRemoval":
        """Return the removal of all views that read a topic or its table, for the commit that drops the topic (CASCADE).

        `also` is what else is removed in that commit, which is made in the turns of grants.
        """
        return ViewRemoval(self, lambda: self._all_users(self.users_of(topic=topic_id)), also)

    async def _create(
        self, name: str, columns: Sequence[ViewColumn], text: str, sources: Sequence[ViewSource], or_replace: bool
    ) -> ViewDefinition:
        if is_reserved(name):
            raise ReservedTopicError(f"{name!r} is reserved for the server; give the view another name")
        there = self.find(name)
        if there is not None and not or_replace:
            raise TableExistsError(f"view {there.name!r} already exists; use CREATE OR REPLACE VIEW to replace it")
        if there is None:
            self._check_name(name)
        else:
            _check_columns(there, columns)
        self._check_sources(name, there, sources)
        view_id = ViewId(int.from_bytes(self._store.latest(keys.LAST_VIEW_ID) or b"") + 1) if there is None else there.id
        view = ViewDefinition(
            id=view_id,
            name=name if there is None else there.name,
            columns=tuple(columns),
            text=text,
            sources=tuple(sources),
            created_ms=self._clock.now_ms(),
        )
        counter = ((keys.LAST_VIEW_ID, view_id.to_bytes(4)),) if there is None else ()
        changes = Changes(puts=(*counter, (keys.view_key(view_id), msgspec.msgpack.encode(view))))
        await self._committer.submit(Change(lambda: changes, lambda _: self._enter(view)))
        return view

    async def _drop(self, name: str, cascade: bool) -> ViewDefinition:
        view = self.get(name)
        users = self._all_users(self.users_of(view=view.id))
        if users and not cascade:
            raise _depended_on(view.name, users)
        removal = ViewRemoval(self, lambda: [*users, view])
        await self._committer.submit(Change(removal.decide, removal.settled, removal.failed))
        return view

    def _check_name(self, name: str) -> None:
        check_relation_name(name, self._limits)
        try:
            self._topics.check_alias(topic_form(name))
        except TopicExistsError:
            raise TableExistsError(f"{name!r} is the name of a table, topic or alias; choose another name") from None
        if len(self) >= self._limits.views:
            raise LimitExceededError(f"there are {len(self)} views, as many as the limit views allows; drop one first")

    def _check_sources(self, name: str, there: ViewDefinition | None, sources: Sequence[ViewSource]) -> None:
        for source in sources:
            is_gone = (source.topic is not None and self._topics.by_id(source.topic) is None) or (
                source.view is not None and source.view not in self._by_id
            )
            if is_gone:
                raise OverloadedError(f"{source.name!r} was dropped while view {name!r} was created; send the statement again")
        if there is not None:
            used = {source.view for source in sources}
            while used:
                if there.id in used:
                    raise SqlError(f"view {name!r} would read itself, which has no end", sqlstate=_RECURSION)
                used = {
                    source.view
                    for one in used
                    if one is not None and (view := self._by_id.get(one)) is not None
                    for source in view.sources
                }

    def _all_users(self, users: Sequence[ViewDefinition]) -> list[ViewDefinition]:
        """Return these views and all that use them, each once, the last ones first."""
        found: dict[ViewId, ViewDefinition] = {}
        waiting = list(users)
        while waiting:
            view = waiting.pop()
            found.pop(view.id, None)
            found[view.id] = view
            waiting += self.users_of(view=view.id)
        return list(reversed(found.values()))

    def _enter(self, view: ViewDefinition) -> None:
        self._by_name[view.name.lower()] = view
        self._by_id[view.id] = view

    def _forget(self, view: ViewDefinition) -> None:
        self._by_name.pop(view.name.lower(), None)
        self._by_id.pop(view.id, None)
        self._grants.forget_on("table", view.name)


class ViewRemoval:
    """Drops views, in a commit of its own or as part of the one that drops what they read."""

    def __init__(
        self, views: ViewDefinitions, choose: Callable[[], list[ViewDefinition]], also: DependentDeletion | None = None
    ) -> None:
        self._views = views
        self._choose = choose
        self._also = also
        self._chosen: list[ViewDefinition] = []

    def decide(self) -> Changes:
        self._chosen = self._choose()
        puts: Puts = tuple(
            put
            for view in self._chosen
            for put in ((keys.view_key(view.id), None), *self._views._grants.removal_on("table", view.name))
        )
        more = None if self._also is None else self._also.decide()
        return Changes(puts=puts) if more is None else more._replace(puts=(*puts, *more.puts))

    def settled(self, receipt: CommitReceipt | None) -> None:
        for view in self._chosen:
            self._views._forget(view)
        if self._also is not None:
            self._also.settled(receipt)

    def failed(self) -> None:
        if self._also is not None:
            self._also.failed()


def _depended_on(name: str, users: Sequence[ViewDefinition]) -> DependentViewsError:
    listed = ", ".join(repr(view.name) for view in users)
    those = "view" if len(users) == 1 else "views"
    uses = "uses" if len(users) == 1 else "use"
    return DependentViewsError(
        f"{name!r} can't be dropped or changed, because {those} {listed} {uses} it; use CASCADE to drop the {those} too"
    )


def _check_columns(there: ViewDefinition, columns: Sequence[ViewColumn]) -> None:
    if len(columns) < len(there.columns):
        raise SqlError("cannot drop columns from view", sqlstate=_INVALID_DEFINITION)
    for old, new in zip(there.columns, columns, strict=False):
        if old.name != new.name:
            raise SqlError(
                f'cannot change name of view column "{old.name}" to "{new.name}"; drop the view and create it again',
                sqlstate=_INVALID_DEFINITION,
            )
        if type_name(old) != type_name(new):
            raise SqlError(
                f'cannot change data type of view column "{old.name}" from {type_name(old)} to {type_name(new)}',
                sqlstate=_INVALID_DEFINITION,
            )


def type_name(column: ViewColumn) -> str:
    """Return the type of a column with what limits it."""
    limits = [str(one) for one in (column.precision, column.scale, column.length) if one is not None]
    # The name of an enum comes after its labels.
    name = column.type.rpartition(_BETWEEN_LABELS)[2]
    return f"{name}({', '.join(limits)})" if limits else name
