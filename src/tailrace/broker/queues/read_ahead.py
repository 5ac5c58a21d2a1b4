"""The next few records of a share, decoded before they are asked for.

A consumer that takes one record at a time would else have its batch decoded from the beginning for each of them. What is kept
here was handed to nobody; it is small, and thrown away when the share has gone on elsewhere.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.ids import Offset
from tailrace.model.limits import KIB
from tailrace.model.record import Record

RECORDS_AHEAD = 100
_BYTES_AHEAD = 64 * KIB


class Next(NamedTuple):
    records: Sequence[Record]
    end: Offset
    """Where to go on; what lies before it and is not among the records is nobody's."""


class ReadAhead:
    def __init__(self) -> None:
        self._start = self._end = Offset(0)
        self._records: deque[Record] = deque()

    def keep(self, start: Offset, records: Sequence[Record], end: Offset) -> None:
        """All that was read from `start` up to `end`."""
        self._start = start
        self._records = deque(records)
        self._end = end

    def take(self, start: Offset, most: int) -> Next | None:
        """Up to so many records from here on; `None` if this is not where they begin."""
        if start != self._start or start == self._end:
            return None
        taken = [self._records.popleft() for _ in range(min(most, len(self._records)))]
        self._start = Offset(taken[-1].offset + 1) if self._records else self._end
        self._bound()
        return Next(taken, self._start)

    def _bound(self) -> None:
        size = 0
        for number, record in enumerate(self._records):
            size += len(record.value or b"") + len(record.key or b"")
            if size > _BYTES_AHEAD or number == RECORDS_AHEAD:
                self._end = Offset(self._start if number == 0 else self._records[number - 1].offset + 1)
                self._records = deque(list(self._records)[:number])
                return
