"""SHOW and DESCRIBE, from the state of the broker."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.tables.views import type_name
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.errors import UnknownTableError
from tailrace.model.source import format_lsn
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Column, ColumnType
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.select.execution import tables_and_topics
from tailrace.sql.statements import DescribeStatement, ShowStatement
from tailrace.sql.visible_security import visible_quotas, visible_roles, visible_tokens, visible_users

_TEXT = ColumnType("text")
_INTEGER = ColumnType("integer")
_BIGINT = ColumnType("bigint")
_DOUBLE = ColumnType("double")
_BOOLEAN = ColumnType("boolean")
_TEXTS = ColumnType("list", element=_TEXT)


class ShowHandler:
    """Runs SHOW and DESCRIBE, of what the principal of the request may describe."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def show(self, asked: ShowStatement) -> Result:
        if asked.what == "groups":
            # The lags are computed by a scan over the offsets of all groups.
            return self._groups(await asyncio.to_thread(self._broker.offsets.total_lags))
        shown = {
            "topics": self._topics,
            "tables": self._tables,
            "views": self._views,
            "routes": self._routes,
            "pipelines": self._pipelines,
            "sources": self._sources,
            "shadows": self._shadows,
            "users": self._users,
            "roles": self._roles,
            "tokens": self._tokens,
            "quotas": self._quotas,
        }
        return shown[asked.what]()

    async def describe(self, asked: DescribeStatement) -> Result:
        name, what = asked.name, asked.what
        if what is None:
            broker = self._broker
            if broker.tables.find(name) is not None or broker.sources.find_table(name) is not None:
                what = "table"
            elif broker.views.find(name) is not None:
                what = "view"
            elif broker.topics.find(name) is not None:
                what = "topic"
        if what is None:
            hint = did_you_mean(name, tables_and_topics(self._broker))
            raise UnknownTableError(f"there is no table, view or topic {name!r}{hint}", asked.line, asked.column)
        return {"table": self._table, "topic": self._topic, "view": self._view}[what](name)

    def _topics(self) -> Result:
        columns = _columns(
            name=_TEXT,
            alias=_TEXT,
            partitions=_INTEGER,
            records=_BIGINT,
            bytes=_BIGINT,
            retention_seconds=_BIGINT,
            retention_max_bytes=_BIGINT,
            dedup=_TEXT,
            cleanup_policy=_TEXT,
        )
        rows = []
        for live in self._broker.topics.visible():
            if live.is_reserved:
                continue
            topic, settings = live.topic, live.topic.settings
            kept = settings.retention_seconds, settings.retention_max_bytes, settings.dedup, settings.cleanup_policy
            rows.append((topic.name, topic.alias, topic.partitions, *self._content(live), *kept))
        return Result(columns, rows, status=f"SHOW TOPICS {len(rows)}")

    def _tables(self) -> Result:
        columns = _columns(name=_TEXT, columns=_INTEGER, primary_key=ColumnType("list", element=_TEXT), changes=_BIGINT)
        rows = []
        for table in self._broker.tables:
            if not self._may_describe(table.name):
                continue
            changes = self._broker.topics.by_id(table.changes)
            records = 0 if changes is None else self._content(changes)[0]
            rows.append((table.name, len(table.columns), list(table.primary_key), records))
        return Result(columns, rows, status=f"SHOW TABLES {len(rows)}")

    def _views(self) -> Result:
        columns = _columns(name=_TEXT, columns=_INTEGER, query=_TEXT)
        views = [view for view in self._broker.views if self._may_describe(view.name)]
        rows = [(view.name, len(view.columns), view.text) for view in views]
        return Result(columns, rows, status=f"SHOW VIEWS {len(rows)}")

    def _routes(self) -> Result:
        columns = _columns(
            route_id=_BIGINT,
            topic=_TEXT,
            table=_TEXT,
            operations=ColumnType("list", element=_TEXT),
            payload=_TEXT,
            filter=_TEXT,
            partition_by=ColumnType("list", element=_TEXT),
            since=_BIGINT,
            snapshot=_TEXT,
            snapshot_rows=_BIGINT,
            error=_TEXT,
        )
        rows = [
            (
                route.id,
                route.topic_name,
                route.table_name,
                list(route.operations),
                route.payload,
                route.where,
                list(route.partition_by),
                route.since,
                *self._broker.snapshots.progress(route),
                self._broker.routes.breakage(route),
            )
            for route in self._broker.routes
            if self._may_describe(route.table_name) and self._broker.topics.may("describe", route.topic_name)
        ]
        return Result(columns, rows, status=f"SHOW ROUTES {len(rows)}")

    def _groups(self, lags: Mapping[tuple[str, str], int]) -> Result:
        columns = _columns(group_id=_TEXT, state=_TEXT, members=_INTEGER, lag=_BIGINT)
        totals: Counter[str] = Counter()
        for (group, _), lag in lags.items():
            totals[group] += lag
        groups = self._broker.groups
        rows = [
            (listed.name, listed.state, len(groups.describe(listed.name).members), totals[listed.name])
            for listed in groups.visible()
        ]
        return Result(columns, rows, status=f"SHOW GROUPS {len(rows)}")

    def _pipelines(self) -> Result:
        columns = _columns(name=_TEXT, state=_TEXT, latency=_TEXT, mode=_TEXT, lag=_BIGINT, last_error=_TEXT)
        rows = [
            (
                status.name,
                "running" if status.running else "stopped",
                status.latency,
                status.report.mode,
                status.lag,
                status.report.last_error,
            )
            for status in self._broker.routing.pipeline_statuses()
        ]
        return Result(columns, rows, status=f"SHOW PIPELINES {len(rows)}")

    def _sources(self) -> Result:
        columns = _columns(name=_TEXT, state=_TEXT, tables=_BIGINT, position=_TEXT, error=_TEXT, advice=_TEXT)
        rows = [
            (
                status.source.name,
                status.state,
                status.tables,
                None if status.position is None else format_lsn(status.position),
                status.report.error,
                status.report.advice,
            )
            for status in self._broker.sources.statuses()
        ]
        return Result(columns, rows, status=f"SHOW SOURCES {len(rows)}")

    def _shadows(self) -> Result:
        columns = _columns(name=_TEXT, kafka=_TEXT, phase=_TEXT, state=_TEXT, lag=_BIGINT, error=_TEXT, advice=_TEXT)
        rows = [
            (
                status.shadow.name,
                f"{status.shadow.direction} {status.shadow.bootstrap}",
                status.shadow.phase,
                status.state,
                status.report.lag,
                status.report.error,
                status.report.advice,
            )
            for status in self._broker.shadows.statuses()
        ]
        return Result(columns, rows, status=f"SHOW SHADOWS {len(rows)}")

    def _users(self) -> Result:
        columns = _columns(name=_TEXT, roles=_TEXTS, has_password=_BOOLEAN)
        rows = [(user.name, list(user.roles), bool(user.verifiers)) for user in visible_users(self._broker)]
        return Result(columns, rows, status=f"SHOW USERS {len(rows)}")

    def _roles(self) -> Result:
        columns = _columns(name=_TEXT, roles=_TEXTS, members=_TEXTS)
        rows = [(role.name, list(role.roles), members) for role, members in visible_roles(self._broker)]
        return Result(columns, rows, status=f"SHOW ROLES {len(rows)}")

    def _tokens(self) -> Result:
        columns = _columns(token_id=_TEXT, user_name=_TEXT, note=_TEXT, expires_at=ColumnType("timestamp"))
        rows = [
            (
                token.id,
                token.user,
                token.note or None,
                None if token.expires_ms is None else datetime.fromtimestamp(token.expires_ms / 1000, UTC),
            )
            for token in visible_tokens(self._broker)
        ]
        return Result(columns, rows, status=f"SHOW TOKENS {len(rows)}")

    def _quotas(self) -> Result:
        columns = _columns(user_name=_TEXT, client_id=_TEXT, quota=_TEXT, value=_DOUBLE)
        rows = [(quota.entity.user, quota.entity.client_id, kind, value) for quota, kind, value in visible_quotas(self._broker)]
        return Result(columns, rows, status=f"SHOW QUOTAS {len(rows)}")

    def _may_describe(self, table: str) -> bool:
        return self._broker.permissions.may("describe", "table", table)

    def _table(self, name: str) -> Result:
        columns = _columns(column=_TEXT, type=_TEXT, nullable=_BOOLEAN, default=_TEXT, primary_key=_INTEGER)
        captured = self._broker.sources.find_table(name)
        table = self._broker.tables.get(name) if captured is None else captured.table
        key = {column: place for place, column in enumerate(table.primary_key, 1)}
        rows = [
            (column.name, str(column.type), column.nullable and column.name not in key, _default(column), key.get(column.name))
            for column in table.columns
        ]
        return Result(columns, rows, status=f"DESCRIBE TABLE {table.name}")

    def _view(self, name: str) -> Result:
        view = self._broker.views.get(name)
        rows = [(column.name, type_name(column)) for column in view.columns]
        return Result(_columns(column=_TEXT, type=_TEXT), rows, status=f"DESCRIBE VIEW {view.name}")

    def _topic(self, name: str) -> Result:
        live = self._broker.topics.get(name)
        topic = live.topic
        records, size = self._content(live)
        tables = [route.table_name for route in self._broker.routes.of_topic(topic.id)]
        sources = [table for table in tables if self._may_describe(table)]
        told: dict[str, object] = {
            "name": topic.name,
            "alias": topic.alias,
            "uuid": topic.uuid,
            "created": datetime.fromtimestamp(topic.created_ms / 1000, UTC).isoformat(),
            "partitions": topic.partitions,
            "records": records,
            "bytes": size,
            "sources": ", ".join(sources) or None,
            **msgspec.structs.asdict(topic.settings),
        }
        rows = [(what, None if value is None else str(value)) for what, value in told.items()]
        return Result(_columns(property=_TEXT, value=_TEXT), rows, status=f"DESCRIBE TOPIC {topic.name}")

    def _content(self, live: LiveTopic) -> tuple[int, int]:
        """Return the number of records and bytes in all partitions."""
        name, numbers = live.topic.name, range(len(live.partitions))
        bounds = [self._broker.positions.bounds(name, number) for number in numbers]
        return sum(end - start for start, end in bounds), sum(self._broker.positions.size(name, number) for number in numbers)


def _columns(**types: ColumnType) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(name, type_) for name, type_ in types.items())


def _default(column: Column) -> str | None:
    """Return what a column has where a statement gives it nothing."""
    if column.identity is None:
        return column.default
    return f"GENERATED {'ALWAYS' if column.identity.kind == 'always' else 'BY DEFAULT'} AS IDENTITY"
