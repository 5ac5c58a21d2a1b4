"""Relations of a query as DuckDB sees them: streams of Arrow batches that are opened anew for each scan of them.

DuckDB asks for the next batch when it wants one, from a thread of its own, so nothing is read that is not needed and no more
is held than what it works on.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa


class Relation(Protocol):
    schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows. May be called again, and from any thread."""
        ...


class Stopped(Exception):
    """The query was told to stop."""


class Stream:
    """A relation on its way into DuckDB. Keeps the error that ended it, which DuckDB would turn into words."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._is_stopped = False
        self.error: Exception | None = None

    def stop(self) -> None:
        """May be called from any thread."""
        self._is_stopped = True

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._relation.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._relation.batches():
                if self._is_stopped:
                    raise Stopped
                yield batch
        except Exception as error:
            self.error = error
            raise
