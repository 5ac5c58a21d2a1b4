"""What is checked of a database before it is captured: by CREATE SOURCE, and by its DRY RUN alone."""

from collections.abc import Iterator, Sequence

from tailrace.capture.database import LEAST_VERSION, Connection, Database, FoundTable, find_slot, matching_tables
from tailrace.capture.failures import CaptureError
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.source import Source

_MAX_LISTED = 5
_ROLE = """
SELECT rolreplication, rolsuper,
       EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication' AND pg_has_role(current_user, r.oid, 'MEMBER'))
FROM pg_roles WHERE rolname = current_user
"""
_COUNTS = """
SELECT current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication),
       current_setting('max_slot_wal_keep_size', true), current_setting('wal_level')
"""


def check_source(source: Source) -> list[ConnectionCheck]:
    """Return everything that can be said of the database without changing it, in order."""
    try:
        with Database(source).connect() as connection:
            return [
                ConnectionCheck("connection", "ok", f"connected to {Database(source).shown_address} as {connection.info.user}"),
                *_check_server(connection),
                *_check_slots(connection, source),
                *_check_tables(connection, source),
            ]
    except CaptureError as error:
        return [ConnectionCheck("connection", "failed", error.message, error.advice)]


def require_capturable(connection: Connection) -> None:
    """Raise if the server can't be captured at all."""
    for check in _check_server(connection):
        if check.result == "failed":
            raise CaptureError(check.detail, check.advice, state="failed")


def _check_server(connection: Connection) -> Iterator[ConnectionCheck]:
    info = connection.info
    version = info.parameter_status("server_version") or str(info.server_version)
    if info.server_version < LEAST_VERSION:
        yield ConnectionCheck("version", "failed", f"the database is PostgreSQL {version}", "Use PostgreSQL 14 or newer")
    else:
        yield ConnectionCheck("version", "ok", f"PostgreSQL {version}")
    _, _, senders, connected, keep, level = connection.execute(_COUNTS).fetchone() or (0, 0, 0, 0, None, "")
    if level != "logical":
        yield ConnectionCheck(
            "wal_level",
            "failed",
            f"the database has wal_level = {level}, which does not log what changes",
            "Set wal_level = logical in its configuration (ALTER SYSTEM SET wal_level = 'logical') and restart it",
        )
    else:
        yield ConnectionCheck("wal_level", "ok", "wal_level is logical")
    may_replicate, is_superuser, by_role = connection.execute(_ROLE).fetchone() or (False, False, False)
    if may_replicate or is_superuser or by_role:
        yield ConnectionCheck("replication", "ok", f"{info.user} may replicate")
    else:
        yield ConnectionCheck(
            "replication",
            "failed",
            f"the user {info.user} has no right to replicate",
            f"Run as an administrator: ALTER ROLE {info.user} REPLICATION",
        )
    if connected >= senders:
        yield ConnectionCheck(
            "max_wal_senders", "warning", f"{connected} of {senders} WAL senders are in use", "Raise max_wal_senders"
        )
    if keep == "-1":
        yield ConnectionCheck(
            "max_slot_wal_keep_size",
            "warning",
            "the database keeps the WAL of a slot without a bound while its source is not captured",
            "Set max_slot_wal_keep_size if a full disk of the database would be worse than a source that must be created again",
        )


def _check_slots(connection: Connection, source: Source) -> Iterator[ConnectionCheck]:
    slots, used, *_ = connection.execute(_COUNTS).fetchone() or (0, 0)
    if find_slot(connection, source.slot) is not None:
        yield ConnectionCheck(
            "slot",
            "failed",
            f"the slot {source.slot!r} exists already in the database",
            "Leave out the option slot, or drop that slot there if nobody needs it: SELECT pg_drop_replication_slot(...)",
        )
    elif used >= slots:
        yield ConnectionCheck(
            "slot",
            "failed",
            f"all {slots} replication slots of the database are in use",
            "Raise max_replication_slots, or drop slots that nobody uses (pg_replication_slots)",
        )
    else:
        yield ConnectionCheck("slot", "ok", f"{used} of {slots} replication slots are in use; {source.slot!r} will be created")


def _check_tables(connection: Connection, source: Source) -> Iterator[ConnectionCheck]:
    found = matching_tables(connection, source.tables)
    patterns = ", ".join(source.tables)
    if not found:
        yield ConnectionCheck(
            "tables",
            "warning",
            f"no table matches {patterns} yet",
            "Tables that are created later are captured from then on. Check the names if they exist already",
        )
    else:
        yield ConnectionCheck("tables", "ok", f"{len(found)} match {patterns}: {_listed(found)}")
    without_key = [table for table in found if not table.has_key]
    if without_key:
        yield ConnectionCheck(
            "primary key",
            "warning",
            f"without a primary key: {_listed(without_key)}. Their events have no key, and all go to one partition",
            "Add a primary key. Without one PostgreSQL rejects UPDATE and DELETE of published tables, unless their REPLICA"
            " IDENTITY is FULL",
        )
    partial = [table for table in found if table.identity != "full" and table.has_key]
    if partial:
        yield ConnectionCheck(
            "replica identity",
            "warning",
            f"only the key of old rows is logged: {_listed(partial)}. Their events have no whole old row",
            "ALTER TABLE ... REPLICA IDENTITY FULL, where routes compare OLD with NEW",
        )
    if source.owns_publication:
        foreign = [table for table in found if not table.is_owner]
        may_create = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
        if foreign or not (may_create and may_create[0]):
            what = f"does not own {_listed(foreign)}" if foreign else "may not create a publication in this database"
            yield ConnectionCheck(
                "publication",
                "failed",
                f"the user {connection.info.user} {what}",
                "Let an owner run CREATE PUBLICATION ... FOR TABLE ... WITH (publish_via_partition_root = true), and name it in"
                " the option publication",
            )
        else:
            yield ConnectionCheck("publication", "ok", f"{source.publication!r} will be created")
    elif connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (source.publication,)).fetchone() is None:
        yield ConnectionCheck(
            "publication",
            "failed",
            f"the publication {source.publication!r} does not exist",
            "Create it, or leave out the option",
        )
    else:
        yield ConnectionCheck("publication", "ok", f"{source.publication!r} exists")
    if source.snapshot == "initial":
        unreadable = [table for table in found if not table.may_read]
        if unreadable:
            yield ConnectionCheck(
                "select",
                "failed",
                f"the user {connection.info.user} may not read {_listed(unreadable)}, which the snapshot has to",
                "GRANT SELECT ON these tables TO the user, or use snapshot = 'none'",
            )


def _listed(tables: Sequence[FoundTable]) -> str:
    names = [table.full_name for table in tables]
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
