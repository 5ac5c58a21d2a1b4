"""What a worker reads of a relation, batch by batch, and what is read and decoded ahead of it."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from tailrace.model.errors import TailraceError
from tailrace.model.limits import MIB
from tailrace.sql.select.topics import TopicRelation
from tailrace.sql.select.worker_protocol import Relation

_SMALL_ROWS = 1_000
_AHEAD_FROM = 4
_AHEAD_BYTES = 16 * MIB
_AHEAD_PARTS = 2


class RelationScan:
    """The batches of one scan.

    Of a long one of a topic, the next parts are read and decoded while the worker has the last batch: read by the thread of the
    query, decoded by threads that all queries share. Batches come in the order of the log.
    """

    def __init__(self, relation: Relation, decoders: ThreadPoolExecutor) -> None:
        self._is_topic = isinstance(relation, TopicRelation)
        self._parts = relation.parts() if isinstance(relation, TopicRelation) else iter((relation.batches(),))
        self._part: Iterator[pa.RecordBatch] = iter(())
        self._decoders = decoders
        self._taken = 0
        self._is_small = True
        self._known: list[pa.RecordBatch | TailraceError | None] = []
        """The next batch, if it was decoded already by the thread of the query."""
        self._ahead: deque[_PartAhead] = deque()

    def take(self) -> pa.RecordBatch | None:
        """Return the next batch; none at the end."""
        self._taken += 1
        batch = self._known.pop() if self._known else self._next()
        if isinstance(batch, TailraceError):
            raise batch
        self._is_small = batch is not None and batch.nbytes <= _AHEAD_BYTES
        return batch

    def ends_with(self, batch: pa.RecordBatch) -> bool:
        """Return whether this batch is known to be the last one, which is found out for small ones, to save a message."""
        if self._is_topic or batch.num_rows > _SMALL_ROWS:
            return False
        self._known = [self._next()]
        return self._known[0] is None

    def read_ahead(self) -> None:
        """Decode the next batch of a part that has several. After the last one, read the next parts and have them decoded."""
        if not self._is_topic or self._taken < _AHEAD_FROM or not self._is_small:
            return
        try:
            batch = next(self._part, None)
        except TailraceError as error:
            self._known = [error]
            return
        if batch is not None:
            self._known = [batch]
            return
        while len(self._ahead) < _AHEAD_PARTS:
            first: Future[pa.RecordBatch | None] = Future()
            try:
                part = next(self._parts, None)
            except TailraceError as error:
                first.set_exception(error)
                self._ahead.append(_PartAhead(iter(()), first))
                return
            if part is None:
                return
            self._ahead.append(_PartAhead(part, self._decoders.submit(next, part, None)))

    def _next(self) -> pa.RecordBatch | None:
        while True:
            batch = next(self._part, None)
            if batch is None and self._ahead:
                self._part, first = self._ahead.popleft()
                batch = first.result()
            elif batch is None:
                part = next(self._parts, None)
                if part is None:
                    return None
                self._part = part
            if batch is not None:
                return batch


class _PartAhead(NamedTuple):
    """A part of a scan whose first batch is being decoded."""

    batches: Iterator[pa.RecordBatch]
    first: Future[pa.RecordBatch | None]
