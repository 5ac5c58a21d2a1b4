"""DuckDB for one query at a time: in memory, and locked in.

A session can't reach files, the network, extensions or its own settings; it has a bound on memory and threads. What DuckDB says
when something is wrong becomes one of our errors here.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa

from tailrace.model.errors import QueryLimitError, SqlError
from tailrace.sql.select.channel import AnswerColumn
from tailrace.sql.select.forms import column_type, form_of
from tailrace.sql.select.functions import check_calls
from tailrace.sql.select.relations import Relation, Stream

_ROWS_AT_ONCE = 512
# Half of the machine is for producers and consumers.
_THREADS = max(1, (os.cpu_count() or 1) // 2)
_FOREIGN_ERRORS = (duckdb.Error, pa.ArrowException, OSError, MemoryError)


class QueryInterrupted(Exception):
    """The query was told to make room for others."""


class Session:
    def __init__(self, query_bytes: int) -> None:
        self._query_bytes = query_bytes
        self._names: list[str] = []
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "allow_community_extensions": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "enable_external_access": "false",
                # As in PostgreSQL and SQLite: 7 / 2 is 3.
                "integer_division": "true",
                "max_temp_directory_size": "0KB",
                "memory_limit": f"{query_bytes}B",
                "python_enable_replacements": "false",
                "temp_directory": "",
                "threads": str(_THREADS),
            },
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")

    def begin(self) -> None:
        """From here on `now()` is one time."""
        self._connection.execute("BEGIN")

    def constants(self, question: str) -> Sequence[int | None]:
        """One row of numbers."""
        try:
            (row,) = self._connection.execute(question).fetchall()
        except _FOREIGN_ERRORS as error:
            raise self._in_our_words(error) from error
        return tuple(row)

    def run(
        self, text: str, relations: Mapping[str, Relation]
    ) -> tuple[Sequence[AnswerColumn], pa.Schema, Iterator[pa.RecordBatch]]:
        """The query's columns and rows, which are made while they are read."""
        try:
            ((parsed,),) = self._connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchall()
            check_calls(parsed, relations.keys())
            for name, relation in relations.items():
                self._names.append(name)
                self._connection.register(name, Stream(relation))
            found = self._connection.sql(text)
            columns = [
                AnswerColumn(name, column_type(kind), form_of(kind))
                for name, kind in zip(found.columns, found.types, strict=True)
            ]
            reader = found.to_arrow_reader(_ROWS_AT_ONCE)
        except _FOREIGN_ERRORS as error:
            raise self._in_our_words(error) from error
        return columns, reader.schema, self._batches(reader)

    def reset(self) -> bool:
        """Forget the query, and say whether the session is fit for another one."""
        try:
            # First, for a query that failed leaves a transaction in which nothing else can be done.
            self._connection.execute("ROLLBACK")
            for name in self._names:
                self._connection.unregister(name)
        except duckdb.Error:
            return False
        self._names = []
        return True

    def interrupt(self) -> None:
        """From any thread: make the query that runs fail. Without one it does nothing."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            with reader:
                yield from reader
        except _FOREIGN_ERRORS as error:
            raise self._in_our_words(error) from error

    def _in_our_words(self, error: Exception) -> SqlError | QueryInterrupted:
        said = str(error).split("\n\nLINE ")[0]
        if isinstance(error, duckdb.InterruptException) or "INTERRUPT Error" in said:
            return QueryInterrupted("the query made room for others")
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "Out of Memory Error" in said:
            return QueryLimitError(
                f"the query takes more memory than query_bytes allows ({self._query_bytes}); narrow it down by WHERE, or select"
                " fewer columns"
            )
        _, _, words = said.partition("Error: ")
        # It goes on with settings that nobody can change here.
        words = words.partition(" Use TRY(...)")[0]
        return SqlError(f"the query can't be run: {words or said}")
