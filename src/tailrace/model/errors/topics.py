"""Topics, their partitions, and places in them that are not there."""

from tailrace.model.errors.base import InvalidRequestError, TailraceError
from tailrace.model.ids import Partition


class InvalidTopicNameError(InvalidRequestError):
    """The topic's or alias's name is not legal."""

    kafka_code = 17


class InvalidPatternError(InvalidRequestError):
    """The pattern of topic names is not legal."""


class InvalidPartitionsError(InvalidRequestError):
    """The number of partitions is not possible."""

    kafka_code = 37


class InvalidReplicationError(InvalidRequestError):
    """More copies of a partition were asked for than there are servers."""

    kafka_code = 38


class InvalidAssignmentError(InvalidRequestError):
    """Partitions of a topic are assigned to servers that are not there, or not all of them are assigned."""

    kafka_code = 39


class ReservedTopicError(InvalidRequestError):
    """The topic belongs to the server, which alone makes it, writes to it and deletes it."""

    kafka_code = 44
    http_status = 403


class UnknownTopicError(TailraceError):
    """There is no such topic or alias."""

    kafka_code = 3
    http_status = 404
    retriable = True


class UnknownTopicIdError(UnknownTopicError):
    """There is no topic with this id: it was deleted, and perhaps made anew."""

    kafka_code = 100


class UnknownPartitionError(UnknownTopicError):
    """The topic is there, the partition is not."""

    @classmethod
    def of(cls, partition: Partition) -> "UnknownPartitionError":
        """For the store, which knows what there is and no names."""
        return cls(f"there is no partition {partition.number}: its topic was deleted, or never had it")


class TopicExistsError(TailraceError):
    """A topic or alias of that name exists and differs from what was asked for."""

    kafka_code = 36
    http_status = 409


class OffsetOutOfRangeError(TailraceError):
    """The offset is below the partition's start (retention moved it) or above its end."""

    kafka_code = 1
    http_status = 416

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end

    @classmethod
    def of(cls, partition: str, offset: int, start: int, end: int) -> "OffsetOutOfRangeError":
        """`partition` is named as `TopicNames.of` does."""
        return cls(f"{partition} holds offsets {start} to {end}, not {offset}", start, end)


class CursorOutOfRangeError(TailraceError):
    """The cursor is beyond the end of the log."""

    kafka_code = 1
    http_status = 416

    def __init__(self, message: str, end: int) -> None:
        super().__init__(message)
        self.end = end
