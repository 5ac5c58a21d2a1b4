"""What the tables of a PostgreSQL hold at the end of transactions, told by PostgreSQL, and held against replayed events.

Each transaction of a load ends with a row of the table `boundary`: how many changes it has made, and a digest of the rows of
its writer in every table, computed in the same transaction. The row is captured like any other. So the events themselves say
what the rows must be behind each transaction, and PostgreSQL judges: it reads the replayed rows as JSON and digests them in the
same way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg

from tests.support.change_replay import NO_KEY, ChangeEvent, ReplayError, Transaction, as_recordset
from tests.support.postgres_server import sql

BOUNDARY = "public.boundary"

_DIGEST = "SELECT jsonb_build_array(count(*), md5(coalesce(string_agg(r, E'\\n' ORDER BY r COLLATE \"C\"), ''))) FROM"
_SCHEMA = f"""
CREATE TABLE boundary (id text PRIMARY KEY, owner integer, changes jsonb, contents jsonb);
CREATE FUNCTION contents_of(tables text[], who integer) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one text;
    types jsonb;
    digest jsonb;
    found jsonb := '{{}}';
BEGIN
    FOREACH one IN ARRAY tables LOOP
        SELECT jsonb_object_agg(attname, format_type(atttypid, atttypmod)) INTO types
        FROM pg_attribute WHERE attrelid = one::regclass AND attnum > 0 AND NOT attisdropped;
        EXECUTE format($q${_DIGEST} (SELECT to_jsonb(t)::text AS r FROM %s AS t WHERE owner = $1) AS texts$q$, one)
        INTO digest USING who;
        found := found || jsonb_build_object(one, jsonb_build_object('types', types, 'digest', digest));
    END LOOP;
    RETURN found;
END $$;
"""


class TableContents(msgspec.Struct):
    types: dict[str, str]
    digest: tuple[int, str]
    """The number of the writer's rows, and the digest of them."""


class Boundary(msgspec.Struct):
    id: str
    owner: int
    changes: dict[str, int]
    """How many events the transaction has, by table, without that of the boundary itself."""
    contents: dict[str, TableContents]


def create_boundaries(connection: "psycopg.Connection[Any]") -> None:
    connection.execute(sql(_SCHEMA))


def note_boundary(
    cursor: "psycopg.Cursor[Any]", name: str, owner: int, changes: Mapping[str, int], tables: Sequence[str]
) -> None:
    """Note in the transaction, as its last change, what it has changed and what its writer's rows are."""
    cursor.execute(
        "INSERT INTO boundary VALUES (%s, %s, %s, contents_of(%s, %s))",
        (
            name,
            owner,
            msgspec.json.encode({table: count for table, count in changes.items() if count}).decode(),
            [*tables],
            owner,
        ),
    )


class BoundaryJudge:
    """Judges the transactions of a replay, one after the other, through a connection to the PostgreSQL that has made them."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self._last: dict[int, Boundary] = {}
        self.names: set[str] = set()
        self.judged = 0
        """How many contents of tables were compared."""

    def judging(self, transactions: Iterable[Transaction]) -> Iterator[Transaction]:
        """Yield each transaction when it has been judged."""
        last = None
        for transaction in transactions:
            last = transaction
            if transaction.is_snapshot or transaction.is_late:
                # A snapshot has the boundaries of all transactions that its rows include.
                self.names |= {_read(event).id for event in transaction.events if event.table == BOUNDARY}
                yield transaction
                continue
            boundary = self._boundary(transaction)
            counts = dict(transaction.counts())
            counts[BOUNDARY] -= 1
            if {name: count for name, count in counts.items() if count} != boundary.changes:
                raise ReplayError(f"transaction {boundary.id} has made {boundary.changes} changes, and its events are {counts}")
            for table in boundary.changes:
                self._compare(boundary, table, transaction)
            yield transaction
        if last is not None:
            for boundary in self._last.values():
                for table in boundary.contents:
                    self._compare(boundary, table, last)

    def _boundary(self, transaction: Transaction) -> Boundary:
        found = [event for event in transaction.events if event.table == BOUNDARY]
        if len(found) != 1 or found[0].new is None:
            raise ReplayError(f"transaction {transaction.tx} has {len(found)} boundaries: {[*map(str, transaction.events)]}")
        boundary = _read(found[0])
        self._last[boundary.owner] = boundary
        self.names.add(boundary.id)
        return boundary

    def _compare(self, boundary: Boundary, table: str, transaction: Transaction) -> None:
        wanted = boundary.contents[table]
        owner = str(boundary.owner).encode()
        replayed = transaction.tables.get(table)
        rows = [row for row in replayed.rows() if row["owner"] == owner] if replayed else []
        columns = ", ".join(f'"{name}" {type_name}' for name, type_name in wanted.types.items())
        query = f"{_DIGEST} (SELECT to_jsonb(t)::text AS r FROM jsonb_to_recordset(%s::jsonb) AS t({columns})) AS texts"
        as_json = as_recordset(rows, wanted.types)
        ((found,),) = self._connection.execute(sql(query), (as_json.decode(),)).fetchall()
        self.judged += 1
        if tuple(found) != wanted.digest:
            raise ReplayError(
                f"behind transaction {boundary.id} (tx {transaction.tx}) {table} had {wanted.digest}, and by its events it has"
                f" {found}: {as_json[:3000]!r}"
            )


def compare_table(connection: "psycopg.Connection[Any]", table: str, transaction: Transaction) -> None:
    """Compare all rows of a table with the replayed ones, row for row."""
    types = dict(
        connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (table,),
        ).fetchall()
    )
    replayed = transaction.tables.get(table)
    as_json = as_recordset(replayed.rows() if replayed else (), types)
    columns = ", ".join(f'"{name}" {type_name}' for name, type_name in types.items())
    texts = "SELECT to_jsonb(t)::text AS r FROM"
    events = f"{texts} jsonb_to_recordset(%(rows)s::jsonb) AS t({columns})"
    rows = f"{texts} {table} AS t"
    extra = f"SELECT 'only in events: ' || r FROM ({events} EXCEPT ALL {rows}) AS x"
    query = f"({rows} EXCEPT ALL {events}) UNION ALL {extra}"
    different = connection.execute(sql(query), {"rows": as_json.decode()}).fetchall()
    if different:
        raise ReplayError(f"{table} differs in {len(different)} rows: {[row[:2000] for (row,) in different[:4]]}")


def _read(event: ChangeEvent) -> Boundary:
    if event.key == NO_KEY or event.new is None or event.op != "insert":
        raise ReplayError(f"{event}: a boundary is inserted, with a key")
    text = b"{%s}" % b",".join(b"%s:%s" % (msgspec.json.encode(name), value) for name, value in event.new.items())
    return msgspec.json.decode(text, type=Boundary)
