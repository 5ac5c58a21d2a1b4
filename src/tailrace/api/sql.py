"""Schemas of `POST /api/sql`. Arrow, CSV and JSON lines are written by `http/row_encoders.py`."""

from typing import Any

import msgspec

from tailrace.api.consume import CorruptBatchPolicy
from tailrace.api.messages import CorruptRange


class SqlBody(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    """One or more statements."""
    params: list[Any] | dict[str, Any] = []
    """A list for `?`, an object for `:name`; a list of lists runs one INSERT, UPDATE or DELETE once for each."""
    corrupt_batches: CorruptBatchPolicy = "report"
    """Whether a batch that can't be decoded is an error in SELECT and CONSUME, or is skipped."""


class SqlColumn(msgspec.Struct):
    name: str
    type: str


class SqlResponse(msgspec.Struct, omit_defaults=True):
    columns: list[SqlColumn]
    rows: list[list[Any]]
    status: str
    """What was done, such as `INSERT 3`."""
    affected: int | None = None
    """The number of rows written, if the statement writes rows."""
    cursor: int | None = None
    """The cursor of what was written."""
    truncated: bool = False
    """Whether there are more rows than `query_rows` allows, or more to consume than fits into one response."""
    corrupt: list[CorruptRange] = []
    """Batches that can't be decoded: those that were skipped, or the one that the next CONSUME will report."""


class SqlResponses(msgspec.Struct):
    results: list[SqlResponse]
