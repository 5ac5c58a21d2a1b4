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


class Stream:
    """A relation on its way into DuckDB."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._relation.schema, self._relation.batches())
        return reader.__arrow_c_stream__(requested_schema)
