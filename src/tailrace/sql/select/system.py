"""`system.*`: the state of the server as tables. `docs/reference/system-tables.md` describes every column.

A table is read in two steps: state of the event loop is read there, the rest in the thread that runs the query.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tailrace.broker.broker import Broker
from tailrace.broker.metrics import BrokerCollector, SqlCollector
from tailrace.model.errors import UnknownTopicError
from tailrace.model.route import Route
from tailrace.model.security import ResourceKind
from tailrace.model.source import format_lsn
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.visible_security import (
    grant_row,
    visible_grants,
    visible_quotas,
    visible_roles,
    visible_tokens,
    visible_users,
)

NAMESPACE = "system"

SystemRow = tuple[object, ...]
ReadRows = Callable[[], Iterable[SystemRow]]

_TEXTS = pa.list_(pa.string())
_TIME = pa.timestamp("us")


class SystemTable(NamedTuple):
    columns: Mapping[str, pa.DataType]
    read: Callable[[Broker], ReadRows]
    """Called on the event loop; the function that it returns is called in a thread."""
    described: Mapping[str, ResourceKind] = {}
    """The columns with names of resources: a row is shown to who may describe them all."""
    on_cluster: bool = False
    """Whether rows are shown to who may describe the cluster."""
    types: Mapping[str, SqlType] = {}
    """The types in PostgreSQL, where they do not follow from those of Arrow."""


def visible_rows(table: SystemTable, broker: Broker) -> ReadRows:
    """Return what reads the rows that the principal of the request may see. Called on the event loop."""
    if table.on_cluster and not broker.permissions.may("describe", "cluster"):
        return lambda: ()
    rows = table.read(broker)
    if not broker.permissions.is_on or not table.described:
        return rows
    columns = list(table.columns)
    places = [(columns.index(name), kind) for name, kind in table.described.items()]
    may = broker.permissions.describer()
    return lambda: (row for row in rows() if all(row[place] is None or may(kind, str(row[place])) for place, kind in places))


class SystemRelation:
    def __init__(self, table: SystemTable, rows: ReadRows) -> None:
        self.schema = pa.schema(list(table.columns.items()))
        self._rows = rows
        self._read: Sequence[pa.RecordBatch] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._read is None:
            columns = list(zip(*self._rows(), strict=True)) or [()] * len(self.schema)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, self.schema.types, strict=True)]
            self._read = [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]
        return iter(self._read)


def _topics(broker: Broker) -> ReadRows:
    topics = [live.topic for live in broker.topics]

    def rows() -> Iterator[SystemRow]:
        for topic in topics:
            settings = topic.settings
            yield (
                topic.id,
                topic.name,
                topic.alias,
                topic.partitions,
                settings.retention_seconds,
                settings.retention_max_bytes,
                settings.dedup,
                settings.dedup_window_seconds,
                settings.max_message_bytes,
                settings.timestamps,
                settings.compression,
                settings.cleanup_policy,
                settings.delete_retention_seconds,
                settings.min_compaction_lag_seconds,
                settings.max_compaction_lag_seconds,
                settings.min_dirty_percent,
                _time(topic.created_ms),
            )

    return rows


def _routes(broker: Broker) -> ReadRows:
    return lambda: [row for route in broker.routes for row in _of_route(broker, route)]


def _of_route(broker: Broker, route: Route) -> Iterator[SystemRow]:
    partition_by = ", ".join(route.partition_by) or None
    for operation in route.operations:
        yield (
            route.topic,
            route.table,
            operation,
            route.payload,
            route.where,
            partition_by,
            route.id,
            route.topic_name,
            route.table_name,
            route.since,
            *broker.snapshots.progress(route),
            broker.routes.state_of(route),
            broker.routes.breakage(route),
        )


def _offsets(broker: Broker) -> ReadRows:
    lives = {live.topic.name: live for live in broker.topics.all_readable()}

    def rows() -> Iterator[SystemRow]:
        for group, committed in broker.offsets.all_committed():
            live = lives.get(committed.topic)
            end = None if live is None else broker.offsets.end(live, committed.partition)
            if live is not None and end is not None:
                yield (
                    live.topic.id,
                    group,
                    committed.partition,
                    committed.offset - 1 if committed.offset else None,
                    _time(committed.committed_ms),
                    live.topic.name,
                    committed.offset,
                    max(0, end - committed.offset),
                )

    return rows


def _tables(broker: Broker) -> ReadRows:
    def rows() -> Iterator[SystemRow]:
        for table in broker.tables:
            live = broker.topics.by_id(table.changes)
            checkpoint = broker.changes.checkpoints.find(table)
            unfinished = broker.changes.checkpoints.unfinished(table)
            columns = [{"name": column.name, "type": str(column.type), "nullable": column.nullable} for column in table.columns]
            yield (
                table.id,
                table.name,
                msgspec.json.encode(columns).decode(),
                list(table.primary_key),
                None if live is None else live.topic.name,
                _time(table.created_ms),
                None if checkpoint is None else checkpoint.offset,
                None if checkpoint is None else checkpoint.rows,
                None if checkpoint is None else _time(checkpoint.began_ms),
                None if unfinished is None else unfinished.rows,
                table.schema_version,
            )

    return rows


def _constraints(broker: Broker) -> ReadRows:
    def rows() -> Iterator[SystemRow]:
        for table in broker.tables:
            named = {index.name: index.columns for index in table.indexes if index.is_constraint}
            key = next(iter(table.unique_keys))
            yield table.id, table.name, key, "primary key", list(table.primary_key), None
            for name, columns in named.items():
                yield table.id, table.name, name, "unique", list(columns), None
            for check in table.checks:
                yield table.id, table.name, check.name, "check", None, check.expression

    return rows


def _indexes(broker: Broker) -> ReadRows:
    def rows() -> Iterator[SystemRow]:
        for table in broker.tables:
            for index in table.indexes:
                columns = [f"{name} DESC" if name in index.descending else name for name in index.columns]
                yield table.id, table.name, index.name, columns, index.is_unique, index.is_constraint

    return rows


def _groups(broker: Broker) -> ReadRows:
    described = [broker.groups.describe(listing.name) for listing in broker.groups.visible()]

    def rows() -> Iterator[SystemRow]:
        lags: dict[str, int] = {}
        for (name, _), lag in broker.offsets.total_lags().items():
            lags[name] = lags.get(name, 0) + lag
        for group in described:
            clients = [member.client_id for member in group.members]
            kind = group.protocol_type, group.group_type
            yield group.name, group.state, *kind, group.generation, len(clients), clients, lags.get(group.name)

    return rows


def _partitions(broker: Broker) -> ReadRows:
    lives = list(broker.topics)

    def rows() -> Iterator[SystemRow]:
        for live in lives:
            for number in range(len(live.partitions)):
                try:
                    start, end = broker.positions.bounds(live.topic.name, number)
                    size = broker.positions.size(live.topic.name, number)
                except UnknownTopicError:
                    continue
                yield live.topic.id, live.topic.name, number, start, end, end - start, size

    return rows


def _queues(broker: Broker) -> ReadRows:
    queues = broker.queues.all()

    def rows() -> Iterator[SystemRow]:
        for queue in queues:
            for share in queue.shares:
                yield queue.group, *share, queue.max_deliveries

    return rows


def _pipelines(broker: Broker) -> ReadRows:
    statuses = broker.routing.pipeline_statuses()

    def rows() -> Iterator[SystemRow]:
        for status in statuses:
            report = status.report
            yield (
                status.name,
                "running" if status.running else "stopped",
                report.mode,
                status.latency,
                status.owner,
                status.epoch,
                report.batch if report.batch >= 0 else None,
                report.rows,
                report.rows_per_second,
                status.lag,
                report.routes,
                report.dead_letters,
                report.last_error,
                _time(status.seen_ms) if status.seen_ms else None,
            )

    return rows


def _sources(broker: Broker) -> ReadRows:
    statuses = broker.sources.statuses()
    snapshots = {source.id: broker.source_snapshots.state(source) for source in broker.sources}

    def rows() -> Iterator[SystemRow]:
        for status in statuses:
            source, report = status.source, status.report
            yield (
                source.id,
                source.name,
                source.url,
                status.state,
                report.error,
                report.advice,
                list(report.notes),
                status.tables,
                list(source.tables),
                source.snapshot,
                snapshots[source.id],
                report.snapshot_rows,
                report.snapshot_total,
                report.snapshot_table,
                source.captured_by,
                status.owner,
                source.slot,
                source.publication,
                None if status.position is None else format_lsn(status.position),
                format_lsn(report.database_lsn) if report.database_lsn else None,
                max(0, report.database_lsn - report.received_lsn) if report.database_lsn else None,
                report.retained_bytes,
                report.transactions,
                report.changes,
                _time(status.seen_ms) if status.seen_ms else None,
                _time(source.created_ms),
            )

    return rows


def _shadows(broker: Broker) -> ReadRows:
    statuses = broker.shadows.statuses()

    def rows() -> Iterator[SystemRow]:
        for status in statuses:
            shadow, report = status.shadow, status.report
            yield (
                shadow.id,
                shadow.name,
                shadow.direction,
                shadow.bootstrap,
                list(shadow.topics),
                list(shadow.groups),
                shadow.phase,
                shadow.producers if shadow.phase == "cut over" and shadow.direction == "to" else None,
                status.state,
                report.error,
                report.advice,
                status.notes,
                report.lag,
                report.lag_seconds,
                report.records,
                report.bytes,
                report.records_per_second,
                report.bytes_per_second,
                shadow.throttle_bytes,
                len({one.topic for one in report.partitions}),
                report.groups,
                shadow.copied_by,
                shadow.is_paused,
                status.owner,
                _time(status.seen_ms) if status.seen_ms else None,
                _time(shadow.created_ms),
            )

    return rows


def _shadow_partitions(broker: Broker) -> ReadRows:
    found = [(status.shadow, broker.shadow_holds.partitions(status)) for status in broker.shadows.statuses()]

    def rows() -> Iterator[SystemRow]:
        for shadow, partitions in found:
            for one, lost in partitions:
                lag = max(0, one.end - one.position)
                yield (shadow.name, one.topic, one.partition, one.start, one.position, one.end, lag, one.target_end, lost)

    return rows


def _source_tables(broker: Broker) -> ReadRows:
    found = [(source.name, table) for source in broker.sources for table in broker.sources.tables_of(source)]
    names = {live.topic.id: live.topic.name for live in broker.topics}

    def rows() -> Iterator[SystemRow]:
        for source, one in found:
            table = one.table
            yield (
                table.id,
                source,
                table.name,
                f"{one.schema}.{one.relation}",
                [f"{column.name} {column.type}" for column in table.columns],
                list(table.primary_key),
                one.identity,
                table.schema_version,
                names.get(table.changes),
                _time(table.created_ms),
            )

    return rows


def _stats(broker: Broker) -> ReadRows:
    families = [*BrokerCollector(broker).collect(), *SqlCollector(broker.changes.stats).collect()]

    def rows() -> Iterator[SystemRow]:
        for family in families:
            for sample in family.samples:
                if not sample.name.endswith(("_bucket", "_created")):
                    yield sample.name, float(sample.value), msgspec.json.encode(sample.labels).decode()

    return rows


def _users(broker: Broker) -> ReadRows:
    users = visible_users(broker)
    return lambda: [
        (one.id, one.name, list(one.roles), [each.mechanism for each in one.verifiers], _time(one.created_ms)) for one in users
    ]


def _roles(broker: Broker) -> ReadRows:
    roles = visible_roles(broker)
    return lambda: [
        (role.name, list(role.roles), members, _time(role.created_ms) if role.created_ms else None) for role, members in roles
    ]


def _tokens(broker: Broker) -> ReadRows:
    tokens = visible_tokens(broker)
    return lambda: [
        (
            token.id,
            token.user,
            token.note or None,
            None if token.expires_ms is None else _time(token.expires_ms),
            _time(token.created_ms),
        )
        for token in tokens
    ]


def _quotas(broker: Broker) -> ReadRows:
    quotas = visible_quotas(broker)
    return lambda: [(quota.entity.user, quota.entity.client_id, kind, value) for quota, kind, value in quotas]


def _grants(broker: Broker) -> ReadRows:
    grants = visible_grants(broker)
    return lambda: [grant_row(one) for one in grants]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)


SYSTEM_TABLES: Mapping[str, SystemTable] = {
    "topics": SystemTable(
        {
            "topic_id": pa.int64(),
            "name": pa.string(),
            "alias": pa.string(),
            "partitions": pa.int32(),
            "retention_seconds": pa.int64(),
            "retention_max_bytes": pa.int64(),
            "dedup": pa.string(),
            "dedup_window_seconds": pa.int64(),
            "max_message_bytes": pa.int64(),
            "timestamps": pa.string(),
            "compression": pa.string(),
            "cleanup_policy": pa.string(),
            "delete_retention_seconds": pa.int64(),
            "min_compaction_lag_seconds": pa.int64(),
            "max_compaction_lag_seconds": pa.int64(),
            "min_dirty_percent": pa.int64(),
            "created_at": _TIME,
        },
        _topics,
        {"name": "topic"},
    ),
    "topic_routes": SystemTable(
        {
            "topic_id": pa.int64(),
            "table_id": pa.int64(),
            "op": pa.string(),
            "payload_mode": pa.string(),
            "filter_expr": pa.string(),
            "partition_key_expr": pa.string(),
            "route_id": pa.int64(),
            "topic": pa.string(),
            "source_table": pa.string(),
            "since_cursor": pa.int64(),
            "snapshot": pa.string(),
            "snapshot_rows": pa.int64(),
            "state": pa.string(),
            "error": pa.string(),
        },
        _routes,
        {"topic": "topic", "source_table": "table"},
    ),
    "topic_offsets": SystemTable(
        {
            "topic_id": pa.int64(),
            "group_id": pa.string(),
            "partition_id": pa.int32(),
            "last_acked_offset": pa.int64(),
            "updated_at": _TIME,
            "topic": pa.string(),
            "next_offset": pa.int64(),
            "lag": pa.int64(),
        },
        _offsets,
        {"group_id": "group", "topic": "topic"},
    ),
    "tables": SystemTable(
        {
            "table_id": pa.int64(),
            "name": pa.string(),
            "columns": pa.json_(),
            "primary_key": _TEXTS,
            "changes_topic": pa.string(),
            "created_at": _TIME,
            "checkpoint_offset": pa.int64(),
            "checkpoint_rows": pa.int64(),
            "checkpoint_at": _TIME,
            "unfinished_checkpoint_rows": pa.int64(),
            "schema_version": pa.int32(),
        },
        _tables,
        {"name": "table"},
    ),
    "constraints": SystemTable(
        {
            "table_id": pa.int64(),
            "table_name": pa.string(),
            "name": pa.string(),
            "kind": pa.string(),
            "columns": _TEXTS,
            "expression": pa.string(),
        },
        _constraints,
        {"table_name": "table"},
    ),
    "indexes": SystemTable(
        {
            "table_id": pa.int64(),
            "table_name": pa.string(),
            "name": pa.string(),
            "columns": _TEXTS,
            "is_unique": pa.bool_(),
            "is_constraint": pa.bool_(),
        },
        _indexes,
        {"table_name": "table"},
    ),
    "groups": SystemTable(
        {
            "group_id": pa.string(),
            "state": pa.string(),
            "protocol_type": pa.string(),
            "group_type": pa.string(),
            "generation": pa.int32(),
            "members": pa.int32(),
            "clients": _TEXTS,
            "lag": pa.int64(),
        },
        _groups,
        {"group_id": "group"},
    ),
    "partitions": SystemTable(
        {
            "topic_id": pa.int64(),
            "topic": pa.string(),
            "partition_id": pa.int32(),
            "start_offset": pa.int64(),
            "end_offset": pa.int64(),
            "records": pa.int64(),
            "size_bytes": pa.int64(),
        },
        _partitions,
        {"topic": "topic"},
    ),
    "queues": SystemTable(
        {
            "group_id": pa.string(),
            "topic": pa.string(),
            "partition_id": pa.int32(),
            "start_offset": pa.int64(),
            "next_offset": pa.int64(),
            "end_offset": pa.int64(),
            "in_flight": pa.int64(),
            "to_repeat": pa.int64(),
            "lag": pa.int64(),
            "max_deliveries": pa.int32(),
        },
        _queues,
        {"group_id": "queue", "topic": "topic"},
    ),
    "pipelines": SystemTable(
        {
            "name": pa.string(),
            "state": pa.string(),
            "mode": pa.string(),
            "latency": pa.string(),
            "owner": pa.string(),
            "epoch": pa.int64(),
            "batch": pa.int64(),
            "rows": pa.int64(),
            "rows_per_second": pa.float64(),
            "lag": pa.int64(),
            "routes": pa.int32(),
            "dead_letters": pa.int64(),
            "last_error": pa.string(),
            "seen_at": _TIME,
        },
        _pipelines,
        on_cluster=True,
    ),
    "sources": SystemTable(
        {
            "source_id": pa.int64(),
            "name": pa.string(),
            "url": pa.string(),
            "state": pa.string(),
            "error": pa.string(),
            "advice": pa.string(),
            "notes": _TEXTS,
            "tables": pa.int32(),
            "table_patterns": _TEXTS,
            "snapshot": pa.string(),
            "snapshot_state": pa.string(),
            "snapshot_rows": pa.int64(),
            "snapshot_total": pa.int64(),
            "snapshot_table": pa.string(),
            "captured_by": pa.string(),
            "owner": pa.string(),
            "slot": pa.string(),
            "publication": pa.string(),
            "position": pa.string(),
            "database_position": pa.string(),
            "lag_bytes": pa.int64(),
            "retained_bytes": pa.int64(),
            "transactions": pa.int64(),
            "changes": pa.int64(),
            "seen_at": _TIME,
            "created_at": _TIME,
        },
        _sources,
        {"name": "source"},
    ),
    "source_tables": SystemTable(
        {
            "table_id": pa.int64(),
            "source": pa.string(),
            "name": pa.string(),
            "relation": pa.string(),
            "columns": _TEXTS,
            "primary_key": _TEXTS,
            "replica_identity": pa.string(),
            "schema_version": pa.int32(),
            "changes_topic": pa.string(),
            "created_at": _TIME,
        },
        _source_tables,
        {"source": "source"},
    ),
    "shadows": SystemTable(
        {
            "shadow_id": pa.int64(),
            "name": pa.string(),
            "direction": pa.string(),
            "kafka": pa.string(),
            "topic_patterns": _TEXTS,
            "group_patterns": _TEXTS,
            "phase": pa.string(),
            "producers": pa.string(),
            "state": pa.string(),
            "error": pa.string(),
            "advice": pa.string(),
            "notes": _TEXTS,
            "lag": pa.int64(),
            "lag_seconds": pa.float64(),
            "records": pa.int64(),
            "bytes": pa.int64(),
            "records_per_second": pa.int64(),
            "bytes_per_second": pa.int64(),
            "throttle_bytes": pa.int64(),
            "topics": pa.int32(),
            "groups": pa.int32(),
            "copied_by": pa.string(),
            "paused": pa.bool_(),
            "owner": pa.string(),
            "seen_at": _TIME,
            "created_at": _TIME,
        },
        _shadows,
        on_cluster=True,
    ),
    "shadow_partitions": SystemTable(
        {
            "shadow": pa.string(),
            "topic": pa.string(),
            "partition_id": pa.int32(),
            "start_offset": pa.int64(),
            "position": pa.int64(),
            "end_offset": pa.int64(),
            "lag": pa.int64(),
            "target_end_offset": pa.int64(),
            "lost_records": pa.int64(),
        },
        _shadow_partitions,
        on_cluster=True,
    ),
    "stats": SystemTable({"name": pa.string(), "value": pa.float64(), "labels": pa.json_()}, _stats, on_cluster=True),
    "users": SystemTable(
        {
            "user_id": pa.int64(),
            "name": pa.string(),
            "roles": _TEXTS,
            "mechanisms": _TEXTS,
            "created_at": _TIME,
        },
        _users,
    ),
    "roles": SystemTable({"name": pa.string(), "roles": _TEXTS, "members": _TEXTS, "created_at": _TIME}, _roles),
    "tokens": SystemTable(
        {
            "token_id": pa.string(),
            "user_name": pa.string(),
            "note": pa.string(),
            "expires_at": _TIME,
            "created_at": _TIME,
        },
        _tokens,
    ),
    "quotas": SystemTable(
        {"user_name": pa.string(), "client_id": pa.string(), "quota": pa.string(), "value": pa.float64()}, _quotas
    ),
    "grants": SystemTable(
        {
            "principal": pa.string(),
            "operation": pa.string(),
            "kind": pa.string(),
            "name": pa.string(),
            "pattern": pa.string(),
            "host": pa.string(),
            "permission": pa.string(),
        },
        _grants,
    ),
}
