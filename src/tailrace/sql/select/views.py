"""Views in queries: a view is found with its query, parsed, and with what the names in the query refer to now."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.model.ids import ViewId
from tailrace.model.limits import Limits
from tailrace.model.view import ViewColumn, ViewDefinition, ViewSource
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.session_values import with_session_user
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.grammar.lexer import read_tokens
from tailrace.sql.grammar.selects import parse_query
from tailrace.sql.select.plan import FoundRelation, FoundView, QueryNames, QueryOutline, names_in
from tailrace.sql.select.system_names import is_system_name
from tailrace.sql.session_user import session_user
from tailrace.sql.statements import Query


class ViewExpansion:
    """Used on the event loop."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._limits = limits
        self._parsed: dict[ViewId, tuple[ViewDefinition, Query, QueryNames]] = {}

    def found(self, view: ViewDefinition) -> FoundRelation:
        """Return a view as a relation."""
        known = self._parsed.get(view.id)
        if known is None or known[0] is not view:
            query = parse_query(read_tokens(view.text), view.text, self._limits)
            known = self._parsed[view.id] = (view, query, names_in(query, ()))
        _, query, named = known
        sources: dict[str, tuple[str, Sequence[str] | None]] = {
            name: (name, None) for name in named.relations if is_system_name(name)
        }
        for source in view.sources:
            key = self._name_now(source)
            if key is not None:
                sources[source.name] = (key, source.columns)
        changes = frozenset(sources[name][0] for name in named.changes if name in sources)
        columns = [RelationColumn(column.name, type_of(column)) for column in view.columns]
        return FoundRelation("view", view.name, columns, view=FoundView(self._with_user(query), sources, changes))

    def _with_user(self, query: Query) -> Mapping[str, Any]:
        user = session_user(self._broker)
        return query.tree if user is None else with_session_user(query.tree, query.text, user)

    def _name_now(self, source: ViewSource) -> str | None:
        if source.view is not None:
            view = self._broker.views.by_id(source.view)
            return None if view is None else view.name
        if source.topic is None:
            return None
        if source.is_table:
            table = self._broker.tables.of_topic(source.topic)
            return None if table is None else table.name
        live = self._broker.topics.by_id(source.topic)
        return None if live is None else live.topic.name


def view_columns(names: Sequence[str], types: Sequence[SqlType]) -> list[ViewColumn]:
    return [
        ViewColumn(name, kind.name, kind.precision, kind.scale, kind.length) for name, kind in zip(names, types, strict=True)
    ]


def type_of(column: ViewColumn) -> SqlType:
    """Return the type of a column of a view."""
    return SqlType(column.type, column.precision, column.scale, column.length)


def sources_of(outline: QueryOutline, found: Mapping[str, FoundRelation], broker: Broker) -> list[ViewSource]:
    """Return what a view reads whose query has this outline."""
    sources = []
    for name in outline.views:
        view = broker.views.find(found[name].name)
        if view is not None:
            sources.append(ViewSource(name, view=view.id, columns=tuple(column.name for column in view.columns)))
    for name, used in outline.used.items():
        relation = found[name]
        columns = tuple(column.name for column in relation.columns if not column.is_hidden)
        if relation.table is not None:
            sources.append(
                ViewSource(name, topic=relation.table.changes, is_table=True, columns=columns, used=tuple(sorted(used)))
            )
        elif relation.kind == "topic":
            live = broker.topics.get(relation.name)
            sources.append(ViewSource(name, topic=live.topic.id, columns=columns, used=tuple(sorted(used))))
    return sources
