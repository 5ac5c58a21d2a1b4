"""DuckDB for one query at a time: in memory, and locked in.

A session can't reach files, the network, extensions or its own settings; it has a bound on memory and threads, and can be told
to stop from any thread. What DuckDB says when something is wrong becomes one of our errors here.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa

from tailrace.model.errors import QueryLimitError, SqlError, TailraceError
from tailrace.model.limits import Limits
from tailrace.sql.result import Result
from tailrace.sql.select.answer import read_answer
from tailrace.sql.select.functions import check_calls
from tailrace.sql.select.relations import Relation, Stream

_ROWS_AT_ONCE = 512
# Half of the machine is for producers and consumers.
_THREADS = max(1, (os.cpu_count() or 1) // 2)
_COLUMN = re.compile(r'Referenced column "([^"]+)" (?:not found|was not found)')


class Session:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: dict[str, Stream] = {}
        self._is_stopped = False
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
                "memory_limit": f"{limits.query_bytes}B",
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
        except duckdb.Error as error:
            raise self._in_our_words(error) from error
        return tuple(row)

    def run(self, text: str, relations: Mapping[str, Relation]) -> Result:
        """All rows of the query, up to the limits."""
        try:
            ((parsed,),) = self._connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchall()
            check_calls(parsed, relations.keys())
            for name, relation in relations.items():
                self._streams[name] = stream = Stream(relation)
                self._connection.register(name, stream)
            if self._is_stopped:
                self.stop()
            found = self._connection.sql(text)
            return read_answer(found.columns, found.types, _batches(found), self._limits)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._in_our_words(error) from error

    def stop(self) -> None:
        """Make the query fail soon. May be called from any thread."""
        self._is_stopped = True
        for stream in list(self._streams.values()):
            stream.stop()
        self._connection.interrupt()

    def reset(self) -> bool:
        """Forget the query, and say whether the session is fit for another one."""
        try:
            for name in self._streams:
                self._connection.unregister(name)
            self._connection.execute("ROLLBACK")
        except duckdb.Error:
            return False
        self._streams = {}
        return not self._is_stopped

    def close(self) -> None:
        self._connection.close()

    def _in_our_words(self, error: Exception) -> TailraceError:
        for stream in self._streams.values():
            if isinstance(stream.error, TailraceError):
                return stream.error
        said = str(error).split("\n\nLINE ")[0]
        if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in said:
            return QueryLimitError(
                f"the query takes more memory than query_bytes allows ({self._limits.query_bytes}); narrow it down by WHERE,"
                " or select fewer columns"
            )
        _, _, words = said.partition("Error: ")
        return SqlError(f"the query can't be run: {words or said}")


class Sessions:
    """Sessions that wait for a query: opening one takes longer than most queries do. Used from several threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free: list[Session] = []

    def take(self) -> Session:
        try:
            return self._free.pop()
        except IndexError:
            return Session(self._limits)

    def give_back(self, session: Session, *, is_fit: bool) -> None:
        """One in which something went wrong is not used again."""
        if is_fit and session.reset():
            self._free.append(session)
        else:
            session.close()

    def close(self) -> None:
        for session in self._free:
            session.close()


def unknown_column(error: SqlError) -> str | None:
    """The column that an error is about, if it is about one that is not there."""
    found = _COLUMN.search(str(error))
    return found.group(1) if found else None


def _batches(found: duckdb.DuckDBPyRelation) -> Iterator[pa.RecordBatch]:
    with found.to_arrow_reader(_ROWS_AT_ONCE) as reader:
        yield from reader
