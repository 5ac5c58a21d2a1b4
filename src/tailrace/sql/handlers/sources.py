"""CREATE, ALTER and DROP SOURCE. What they define is captured by another process, which also checks the database."""

import secrets
from collections.abc import Sequence

import msgspec

from tailrace.broker.broker import Broker
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.ids import SourceId
from tailrace.model.source import ALL_TABLES, Source
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.handlers.connection_checks import dry_run_result, raise_failed
from tailrace.sql.results import Result
from tailrace.sql.statements import (
    AlterSourceStatement,
    CreateSourceStatement,
    DropSourceStatement,
    ResyncSourceStatement,
    SnapshotSourceStatement,
)


class SourceHandler:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, asked: CreateSourceStatement) -> Result:
        sources = self._broker.sources
        if sources.find(asked.name) is not None and asked.if_not_exists and not asked.is_dry_run:
            return Result(status="CREATE SOURCE, which already exists")
        source = _draft(asked)
        sources.check_new(asked.name)
        checks = await self._checks(asked, source)
        if asked.is_dry_run:
            return dry_run_result(checks)
        raise_failed(checks, asked)
        created = await sources.create(source)
        return Result(status=f"CREATE SOURCE {created.id}")

    async def alter(self, asked: AlterSourceStatement) -> Result:
        source = self._broker.sources.get(asked.name)

        def altered(now: Source) -> Source:
            with_tables = msgspec.structs.replace(now, url=asked.url or now.url, tables=asked.tables or now.tables)
            if asked.password_env is None and asked.password_file is None:
                return with_tables
            return msgspec.structs.replace(with_tables, password_env=asked.password_env, password_file=asked.password_file)

        await self._broker.sources.alter(source, altered)
        return Result(status=f"ALTER SOURCE {source.id}")

    async def snapshot(self, asked: SnapshotSourceStatement) -> Result:
        source = self._broker.sources.get(asked.name)
        known = {f"{table.schema}.{table.relation}" for table in self._broker.sources.tables_of(source)}
        for table in asked.tables:
            if table not in known:
                raise SqlError(
                    f"source {source.name!r} captures no table {table!r}{did_you_mean(table, known)}", asked.line, asked.column
                )
        await self._broker.sources.want_snapshot(source, asked.tables or ALL_TABLES)
        return Result(status=f"ALTER SOURCE {source.id}")

    async def resync(self, asked: ResyncSourceStatement) -> Result:
        source = self._broker.sources.get(asked.name)
        await self._broker.sources.want_resync(source)
        return Result(status=f"ALTER SOURCE {source.id}")

    async def drop(self, asked: DropSourceStatement) -> Result:
        sources = self._broker.sources
        source = sources.find(asked.name)
        if asked.if_exists and source is None:
            return Result(status="DROP SOURCE, which does not exist")
        source = sources.get(asked.name)
        if not asked.cascade:
            sources.check_droppable(source)
        if source.captured_by == "command" or asked.force or sources.databases is None:
            await self._broker.source_snapshots.end(source)
            await sources.drop(asked.name, cascade=asked.cascade)
            return Result(
                status=f"DROP SOURCE {source.id}; drop the slot {source.slot!r} in the database, which keeps WAL for it"
            )
        released = await sources.databases.release(source)
        wrong = next((check for check in released if check.result == "failed"), None)
        if wrong is not None:
            raise SqlError(
                f"the slot of source {source.name!r} could not be dropped: {wrong.detail}. Mend that and try again, or use DROP"
                f" SOURCE {source.name} FORCE and drop the slot {source.slot!r} in the database, which keeps WAL for it",
                asked.line,
                asked.column,
            )
        await self._broker.source_snapshots.end(source)
        await sources.drop(asked.name, cascade=asked.cascade)
        return Result(status=f"DROP SOURCE {source.id}")

    async def _checks(self, asked: CreateSourceStatement, source: Source) -> Sequence[ConnectionCheck]:
        if source.captured_by == "command" and not asked.is_dry_run:
            # The server may not reach the database at all.
            return ()
        databases = self._broker.sources.databases
        if databases is None:
            raise UnsupportedSqlError("this server can't reach databases", asked.line, asked.column)
        return await databases.check(source)


def _draft(asked: CreateSourceStatement) -> Source:
    # The slot must be this source's alone, also among other servers and sources that were dropped.
    own = f"tailrace_{''.join(letter if letter.isalnum() and letter.isascii() else '_' for letter in asked.name.lower())[:40]}"
    suffix = secrets.token_hex(4)
    return Source(
        id=SourceId(0),
        name=asked.name,
        url=asked.url,
        password_env=asked.password_env,
        password_file=asked.password_file,
        tables=asked.tables,
        snapshot=asked.snapshot,
        captured_by=asked.captured_by,
        slot=asked.slot or f"{own}_{suffix}",
        publication=asked.publication or f"{own}_{suffix}",
        owns_publication=asked.publication is None,
        wanted=ALL_TABLES if asked.snapshot == "initial" else (),
        created_ms=0,
    )
