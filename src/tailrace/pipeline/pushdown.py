"""What a query's filters say about where to read. They only narrow the reading: Spark checks every row again."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.ranges import OffsetRange


class RowBounds(msgspec.Struct):
    partitions: set[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    first_ms: int | None = None

    def take(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            column = getattr(each, "attribute", ())
            value: Any = getattr(each, "value", None)
            if column == ("partition",) and isinstance(each, EqualTo | In):
                numbers = {value} if isinstance(each, EqualTo) else set(value)
                self.partitions = numbers if self.partitions is None else self.partitions & numbers
            elif column == ("offset",):
                self._take_offset(each, value)
            elif column == ("timestamp",) and isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                self.first_ms = max(self.first_ms or 0, _milliseconds(value))

    def narrowed(self, connection: ServerConnection, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        found = []
        by_time = {}
        for each in ranges:
            if self.partitions is not None and each.partition not in self.partitions:
                continue
            start = max(each.start, self.first_offset)
            if self.first_ms is not None:
                if each.topic not in by_time:
                    by_time[each.topic] = connection.offsets([each.topic], at=self.first_ms).offsets[each.topic]
                start = max(start, by_time[each.topic][each.partition])
            end = each.end if self.end_offset is None else min(each.end, self.end_offset)
            if start < end:
                found.append(each._replace(start=start, end=end))
        return found

    def _take_offset(self, each: Filter, value: int) -> None:
        if isinstance(each, EqualTo | GreaterThanOrEqual):
            self.first_offset = max(self.first_offset, value)
        elif isinstance(each, GreaterThan):
            self.first_offset = max(self.first_offset, value + 1)
        if isinstance(each, EqualTo | LessThanOrEqual):
            self._end_at(value + 1)
        elif isinstance(each, LessThan):
            self._end_at(value)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset if self.end_offset is None else min(self.end_offset, offset)


def _milliseconds(moment: datetime) -> int:
    """Of a literal, which Spark hands over in UTC or in the session's own zone."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
