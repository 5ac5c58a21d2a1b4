"""The one tree of errors, a module for each family. Everyone imports from here.

Every class carries what each surface needs to answer: Kafka's error code, an HTTP status, whether the same request may
succeed when sent again, and whether its outcome is known. `failed` means that nothing took effect; `unknown` means that
it may have.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

Outcome = Literal["failed", "unknown"]


class TailraceError(Exception):
    """Root of all errors that Tailrace raises on purpose."""

    kafka_code: ClassVar[int] = -1
    http_status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = "failed"

    def afresh(self) -> "TailraceError":
        """The same error without its history. One that is kept and raised many times would drag all its tracebacks along."""
        return _restore(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Callable[..., "TailraceError"], tuple[object, ...]]:
        """Pickle without the constructor, whose parameters differ from class to class."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(error_class: type[TailraceError], args: tuple[object, ...], attributes: Mapping[str, object]) -> TailraceError:
    error = error_class.__new__(error_class, *args)
    error.__dict__.update(attributes)
    return error


class InvalidRequestError(TailraceError):
    """The request itself is wrong; sending it again changes nothing."""

    kafka_code = 42
    http_status = 400


class ConfigurationError(InvalidRequestError):
    """A setting has a value that it can't have."""

    kafka_code = 40


class LimitExceededError(InvalidRequestError):
    """A limit of `model/limits.py` would be passed. The message names the limit."""

    kafka_code = 44


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
    def of(cls, partition: str) -> "UnknownPartitionError":
        """Build the error for a partition, named as `TopicNames.of` does."""
        return cls(f"there is no {partition}")


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


class MessageTooLargeError(LimitExceededError):
    """A record or batch is larger than its topic takes."""

    kafka_code = 10
    http_status = 413


class CorruptBatchError(InvalidRequestError):
    """A record batch does not match its own checksum or its own length, or what is stored can't be decoded."""

    kafka_code = 2
    retriable = True


class InvalidRecordsError(CorruptBatchError):
    """What came in is not one batch for each partition, or its records are not what the batch says of them."""

    kafka_code = 87
    retriable = False


class UnsupportedBatchError(InvalidRequestError):
    """A record batch in a format that Tailrace does not store."""

    kafka_code = 87


class UnsupportedCodecError(UnsupportedBatchError):
    """A record batch is compressed in a way that Tailrace does not know."""

    kafka_code = 76


class InvalidTimestampError(InvalidRequestError):
    """A record's timestamp is negative or too far in the future."""

    kafka_code = 32


class OutOfOrderSequenceError(TailraceError):
    """An idempotent producer left a gap in its sequence."""

    kafka_code = 45
    http_status = 409


class ProducerFencedError(TailraceError):
    """A newer epoch of this producer exists."""

    kafka_code = 47
    http_status = 409


class UnknownProducerError(TailraceError):
    """The producer id was not given out by this server, or its state has expired."""

    kafka_code = 59
    http_status = 409


class InvalidTransactionalIdError(InvalidRequestError):
    """The transactional id is empty or too long."""


class InvalidTransactionTimeoutError(InvalidRequestError):
    """The transaction's time-out is not possible."""

    kafka_code = 50


class InvalidTransactionStateError(TailraceError):
    """The transaction is not in a state in which this can be done."""

    kafka_code = 48
    http_status = 409


class UnknownTransactionalIdError(TailraceError):
    """There is no such transactional id."""

    kafka_code = 105
    http_status = 404


class ProducerMappingError(TailraceError):
    """The producer id is not the one of its transactional id."""

    kafka_code = 49
    http_status = 409


class TransactionFencedError(TailraceError):
    """A newer producer has taken over the transactional id, or the transaction timed out."""

    kafka_code = 90
    http_status = 409


class PipelineFencedError(TailraceError):
    """Another one runs this pipeline."""

    http_status = 409


class PipelineConflictError(TailraceError):
    """A step of a pipeline does not begin where the pipeline stands. It starts again from its mark."""

    http_status = 409


class InvalidGroupNameError(InvalidRequestError):
    """The consumer group's name is not legal."""

    kafka_code = 24


class UnknownGroupError(TailraceError):
    """There is no such consumer group."""

    kafka_code = 69
    http_status = 404


class UnknownMemberError(TailraceError):
    """The consumer group does not know this member: it never joined, was gone for too long, or has left."""

    kafka_code = 25
    http_status = 409


class IllegalGenerationError(TailraceError):
    """The member speaks for another generation of its group than the one in force."""

    kafka_code = 22
    http_status = 409


class FencedInstanceError(TailraceError):
    """Another client has taken over the name of this static member."""

    kafka_code = 82
    http_status = 409


class RebalanceInProgressError(TailraceError):
    """The group shares out its work anew; the member must join again."""

    kafka_code = 27
    http_status = 409
    retriable = True


class MemberIdRequiredError(TailraceError):
    """A new member must join again with the id that it is given here."""

    kafka_code = 79
    http_status = 409
    retriable = True

    def __init__(self, message: str, member_id: str) -> None:
        super().__init__(message)
        self.member_id = member_id


class InconsistentProtocolError(InvalidRequestError):
    """The member has no way to share out the work in common with the other members of its group."""

    kafka_code = 23


class InvalidSessionTimeoutError(InvalidRequestError):
    """The member asks for a session that is shorter or longer than the server allows."""

    kafka_code = 26


class GroupFullError(LimitExceededError):
    """The group has as many members as it may have."""

    kafka_code = 81


class GroupNotEmptyError(TailraceError):
    """The group has members and can't be deleted."""

    kafka_code = 68
    http_status = 409


class GroupSubscribedError(TailraceError):
    """Offsets of a topic that members of the group read can't be deleted."""

    kafka_code = 86
    http_status = 409


class OffsetMetadataTooLargeError(LimitExceededError):
    """The note with a committed offset is longer than `offset_metadata_bytes`."""

    kafka_code = 12


class NoCommittedOffsetError(TailraceError):
    """The group has committed nothing there, and its consumer was told not to choose a start itself."""

    kafka_code = 1
    http_status = 409


class OffsetRegressionError(TailraceError):
    """A committed offset would move back, and no reset was asked for."""

    kafka_code = 42
    http_status = 409


class UnstableOffsetsError(TailraceError):
    """A transaction that is still open holds offsets for this partition."""

    kafka_code = 88
    http_status = 409
    retriable = True


class LateReceiptError(TailraceError):
    """The receipt does not count any more: its time-out has passed, or the record was handed out again, or is done."""

    kafka_code = 121
    http_status = 409

    def __init__(self, message: str, refused: Sequence[object] = ()) -> None:
        """`refused`: each receipt with what was wrong with it, where several were sent."""
        super().__init__(message)
        self.refused = refused


class SqlError(InvalidRequestError):
    """A statement can't be run as it stands: an unknown column, a wrong type, a value that does not fit."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        """`line` and `column` count from 1 and say where in the text; the message begins with them."""
        super().__init__(message if line is None else f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class SqlSyntaxError(SqlError):
    """The text is not a statement of our SQL. The message says where, and what was expected there."""


class UnsupportedSqlError(SqlError):
    """The statement, clause or function is known and not allowed here."""


class QueryLimitError(SqlError):
    """A query took more time, memory or rows than the limits allow. The message names the limit."""

    http_status = 422


class ConstraintError(SqlError):
    """A row breaks a rule of its table: a key that is there already, a null where none may be."""

    http_status = 409


class UnknownTableError(SqlError):
    """There is no such table."""

    kafka_code = 3
    http_status = 404


class TableExistsError(SqlError):
    """A table, topic or alias of that name exists."""

    kafka_code = 36
    http_status = 409


class TablesBehindError(TailraceError):
    """The tables lack changes that are in the log and are being brought up to it. A change that was asked for meets it too."""

    kafka_code = 56
    http_status = 503
    retriable = True
    outcome = "unknown"


class TablesDamagedError(TailraceError):
    """The file of the tables is not what was written. It is made again from the log; nothing was read or written meanwhile."""

    kafka_code = 56
    http_status = 503
    retriable = True


class UnknownRouteError(SqlError):
    """There is no such route."""

    http_status = 404


class RouteExistsError(SqlError):
    """There is a route that does just the same."""

    http_status = 409


class RoutedError(SqlError):
    """The table or topic can't be dropped, because routes lead from or to it."""

    kafka_code = 44
    http_status = 409


class SequencingError(TailraceError):
    """A commit named offsets that are no longer next. Whoever built it must look again and rebuild it."""

    kafka_code = 56
    http_status = 503
    retriable = True


class OverloadedError(TailraceError):
    """A queue is full. Nothing was taken; try again after a pause."""

    kafka_code = 7
    http_status = 503
    retriable = True


class StorageFullError(TailraceError):
    """The disk has no room. Nothing was written; it works again when there is room."""

    kafka_code = 56
    http_status = 507
    retriable = True


class StorageFailedError(TailraceError):
    """A write or sync failed and the store has stopped. What was in flight may or may not be there after the restart."""

    kafka_code = 56
    http_status = 503
    retriable = True
    outcome = "unknown"


class StorageReadError(TailraceError):
    """The disk could not read a file of the store. What was stored may still be there: check the disk."""

    kafka_code = 56


class StoreClosedError(TailraceError):
    """The store is closed or closing and takes nothing new."""

    kafka_code = 8
    http_status = 503
    retriable = True


class FolderInUseError(TailraceError):
    """Another process has the data folder open."""


class FormatError(TailraceError):
    """The data folder was written in a format that this version can't read."""


class CorruptionError(TailraceError):
    """Stored bytes are not what was written. They are reported and never served."""

    kafka_code = 2


class LostEndError(CorruptionError):
    """The log ends before a position up to which it is known to have been synced: acknowledged records are gone."""

    def __init__(self, message: str, end: int, *, can_be_accepted: bool = False) -> None:
        """`end`: the position up to which the log can be read."""
        super().__init__(message)
        self.end = end
        self.can_be_accepted = can_be_accepted

    def acceptable(self) -> "LostEndError":
        """The same, where a server could go on without what is lost."""
        message = f"{self}; or start once with --accept-loss-after {self.end} to go on without what is lost"
        return LostEndError(message, self.end, can_be_accepted=True)


class LostPayloadError(CorruptionError):
    """The payload of a record, which is kept beside the log, is missing or damaged. The records after it can be read."""

    def __init__(self, message: str, next_offset: int | None = None) -> None:
        """`next_offset`: where to go on, once it is known which record it is."""
        super().__init__(message)
        self.next_offset = next_offset


class UnreadableBatchError(CorruptionError):
    """The records of a stored batch can't be decoded though its checksum is right. Those before and after it can be read."""

    def __init__(self, message: str, next_offset: int | None = None) -> None:
        """`next_offset`: where to go on."""
        super().__init__(message)
        self.next_offset = next_offset


class MalformedMessageError(InvalidRequestError):
    """A Kafka message whose lengths and counts do not fit its bytes."""


class UnanswerableRequestError(InvalidRequestError):
    """A Kafka request of a kind or version that has no answer but to close its connection."""

    kafka_code = 35


class UnknownLeaderEpochError(TailraceError):
    """The client knows a newer leader of the partition than there is."""

    kafka_code = 75
    http_status = 409
    retriable = True


class UnknownFetchSessionError(TailraceError):
    """There is no such fetch session, or no more."""

    kafka_code = 70
    http_status = 409
    retriable = True


class FetchSessionEpochError(TailraceError):
    """A request of a fetch session came out of turn."""

    kafka_code = 71
    http_status = 409
    retriable = True


class FetchSessionTopicIdError(TailraceError):
    """A fetch session names topics by id in one request and by name in another."""

    kafka_code = 106
    http_status = 409
    retriable = True


class ServerUnreachableError(TailraceError):
    """A client found no server at its address. Nothing was sent."""

    kafka_code = 7
    http_status = 503
    retriable = True


class TlsError(TailraceError):
    """A client does not trust the certificate of the server, or the server does not speak TLS. Nothing was sent."""

    http_status = 502


class ConnectionLostError(TailraceError):
    """The connection to the server broke before its answer came. The request may have taken effect."""

    kafka_code = 13
    http_status = 503
    retriable = True
    outcome = "unknown"


class TimeoutError(TailraceError, builtins.TimeoutError):
    """A client waited for an answer as long as it may, and none came. The request may have taken effect."""

    kafka_code = 7
    http_status = 504
    retriable = True
    outcome = "unknown"


class SlowSubscriberError(TailraceError):
    """A subscriber took nothing of what it was sent for too long, and was cut off."""

    http_status = 503
    retriable = True


class ClientClosedError(InvalidRequestError):
    """A consumer, publisher or subscription of the client was used after it was closed."""


class InvariantError(RuntimeError):
    """The program contradicts itself. Nothing is safe to do but to stop."""


def invariant(condition: object, message: str) -> None:
    if not condition:
        raise InvariantError(message)
