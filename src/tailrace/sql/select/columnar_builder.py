"""The process that makes a columnar copy of a table: reads its rows from SQLite as of one commit and writes an Arrow file.

It is a process of its own, so that the server's threads do not wait for its interpreter, and runs at a low priority. Its
argument is the descriptor of the pipe that has the request. It says `r` when it is ready for it, `o` when the file is open and
what it reads is fixed, and at the end the number of rows.
"""

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import apsw
import msgspec
import pyarrow as pa

from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.parent_process import end_with_parent
from tailrace.model.table import Table
from tailrace.sql.select.tables import batch_of, schema_of
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.columnar_process import OPENED, READY, BuildRequest
from tailrace.sql.tables.database import abandon, open_reader
from tailrace.sql.tables.schema import rows_sql
from tailrace.sql.tables.table_file import TableFile, check_sealed
from tailrace.sql.tables.values import StoredValue

_NICENESS = 5
_MEMORY_BYTES = 1024 * MIB
_FIRST_ROWS = 1_000
_MAX_ROWS = 65_536
_PART_BYTES = 16 * MIB
_STDOUT = 1


def open_snapshot(request: BuildRequest) -> apsw.Connection:
    """Return a connection to the file of the tables that reads what is committed now."""
    connection = open_reader(TableFile(Path(request.path), request.log_id), DEFAULT_LIMITS)
    register_collations(connection)
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    return connection


def build(connection: apsw.Connection, request: BuildRequest) -> int:
    """Write the rows of the table to the file, and return how many there are. Raises `OSError` if they take too much room."""
    schema = schema_of(request.table.columns)
    rows = 0
    fd = os.open(request.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, pa.ipc.new_file(file, schema) as out:
        for batch in _batches(connection, request.table, schema):
            if file.tell() + batch.nbytes > request.max_bytes:
                raise OSError("the copy takes more room than there is")
            out.write_batch(batch)
            rows += batch.num_rows
    return rows


def _batches(connection: apsw.Connection, table: Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of many rows. How many are read at a time depends on the size of those before."""
    rows: Iterator[Sequence[StoredValue]] = iter(connection.execute(rows_sql(table)))
    at_once = _FIRST_ROWS
    while part := list(islice(rows, at_once)):
        check_sealed(connection)
        batch = batch_of(table.columns, part, schema)
        yield batch
        at_once = max(1, min(_MAX_ROWS, 4 * at_once, _PART_BYTES * batch.num_rows // max(batch.nbytes, 1)))


def main() -> None:
    """Serve the one request of the parent process."""
    end_with_parent()
    os.nice(_NICENESS)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    with os.fdopen(int(sys.argv[1]), "rb") as asked:
        os.write(_STDOUT, READY)
        request = msgspec.json.decode(asked.readline(), type=BuildRequest)
    connection = open_snapshot(request)
    os.write(_STDOUT, OPENED)
    rows = build(connection, request)
    abandon(connection)
    os.write(_STDOUT, b"%d" % rows)


if __name__ == "__main__":
    main()
