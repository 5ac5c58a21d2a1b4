"""Saving the catalog, and finding it again.

A checkpoint is one atomic write to RocksDB that ends with a stamp: up to here the log need not be read again.
"""

from collections.abc import Iterator
from struct import Struct

from tailrace.log.catalog import CheckpointData, LogEnd
from tailrace.log.index import SavedIndex
from tailrace.log.segment import SegmentUsage
from tailrace.log.state import CURSOR, META, SEGMENT, StateDb
from tailrace.model.clock import Hlc
from tailrace.model.errors import FormatError
from tailrace.model.ids import Cursor, Position
from tailrace.model.killpoint import killpoint

_STAMP = META + b"stamp"
_STAMP_VALUE = Struct(">HQQQ")
_FORMAT_VERSION = 2
"""Of the state. What only format 1 has is read, too, and goes when all counters are saved (`log.counters`)."""
_U64 = Struct(">Q")


class Checkpoints:
    def __init__(self, state: StateDb, saved: SavedIndex) -> None:
        self._state = state
        self._saved = saved

    def stamp(self) -> LogEnd | None:
        """Where the last checkpoint was taken."""
        packed = self._state.get(_STAMP)
        if packed is None:
            return None
        version, position, cursor, hlc = _STAMP_VALUE.unpack(packed)
        if version > _FORMAT_VERSION:
            raise FormatError(
                f"the folder's state has format {version}; this version of Tailrace reads up to {_FORMAT_VERSION}: upgrade"
            )
        return LogEnd(Position(position), Cursor(cursor), Hlc(hlc))

    def save(self, cut: CheckpointData) -> None:
        """Durable on return. Everything before `cut.end` must be durable in the log already."""
        killpoint("checkpoint.before")
        batch = self._state.batch()
        for topic_id in cut.dropped:
            self._saved.drop_topic(batch, topic_id)
        for index, places in cut.partitions:
            self._saved.save(batch, index.key, places)
        self._saved.counters.save(batch, cut.end.position, cut.counters, are_all=cut.has_all_counters)
        for usage, packed in cut.usages:
            batch.put(SEGMENT + _U64.pack(usage.base), packed)
        for cursor, position in cut.marks:
            batch.put(CURSOR + _U64.pack(cursor), _U64.pack(position))
        batch.put(_STAMP, _STAMP_VALUE.pack(_FORMAT_VERSION, *cut.end))
        self._state.write(batch)
        killpoint("checkpoint.written")
        self._state.flush()
        killpoint("checkpoint.after")

    def usages(self) -> Iterator[SegmentUsage]:
        """Every segment that the last checkpoint knew, in order."""
        for key, packed in self._state.items(SEGMENT):
            yield SegmentUsage.unpack(_U64.unpack_from(key, 1)[0], packed)

    def marks(self) -> Iterator[tuple[int, int]]:
        """Position and cursor of every saved mark."""
        for key, packed in self._state.items(CURSOR):
            yield _U64.unpack(packed)[0], _U64.unpack_from(key, 1)[0]

    def mark_before(self, cursor: int) -> tuple[int, int] | None:
        """Cursor and position of the last saved mark at or before the cursor."""
        held = self._state.at_or_before(CURSOR, CURSOR + _U64.pack(cursor))
        return (_U64.unpack_from(held[0], 1)[0], _U64.unpack(held[1])[0]) if held else None
