"""The one tree of errors, and the check of invariants.

Every class carries what the surfaces need to answer: Kafka's error code, an HTTP status, whether the same request may succeed
if it is sent again, and its outcome. `failed` means that nothing took effect, `unknown` that the request may have taken effect.

The order is: the root and general errors, topics, records, producers and transactions, groups and queues, SQL, the store,
Kafka's protocol, and the connection between client and server.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

Outcome = Literal["failed", "unknown"]


class TailraceError(Exception):
    """Base class of all errors that Tailrace raises on purpose."""

    kafka_code: ClassVar[int] = -1
    http_status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = "failed"

    def afresh(self) -> "TailraceError":
        """Return a copy without traceback. An error that is kept and raised many times would keep all its tracebacks."""
        return _restore(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Callable[..., "TailraceError"], tuple[object, ...]]:
        """Pickle without the constructor, whose parameters differ from class to class."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(error_class: type[TailraceError], args: tuple[object, ...], attributes: Mapping[str, object]) -> TailraceError:
    error = error_class.__new__(error_class, *args)
    error.__dict__.update(attributes)
    return error


class InvalidRequestError(TailraceError):
    """The request is invalid. Sending it again changes nothing."""

    kafka_code = 42
    http_status = 400


class ConfigurationError(InvalidRequestError):
    """A setting has an invalid value."""

    kafka_code = 40


class LimitExceededError(InvalidRequestError):
    """The request exceeds a limit of `model/limits.py`. The message names the limit."""

    kafka_code = 44


class InvalidTopicNameError(InvalidRequestError):
    """The name or alias of a topic is not legal."""

    kafka_code = 17


class InvalidPatternError(InvalidRequestError):
    """The pattern of topic names is not legal."""


class InvalidPartitionsError(InvalidRequestError):
    """The number of partitions is invalid."""

    kafka_code = 37


class InvalidReplicationError(InvalidRequestError):
    """The number of copies of a partition is below 1."""

    kafka_code = 38


class InvalidAssignmentError(InvalidRequestError):
    """Partitions of a topic are assigned to servers that do not exist, or some are not assigned."""

    kafka_code = 39


class NoReassignmentError(InvalidRequestError):
    """A reassignment of a partition is to be cancelled, and none is in progress."""

    kafka_code = 85


class LogDirNotFoundError(InvalidRequestError):
    """A partition is to be moved to a directory that does not exist."""

    kafka_code = 57


class SecurityDisabledError(InvalidRequestError):
    """A request is about permissions, and there are none."""

    kafka_code = 54


class InvalidFeatureUpdateError(InvalidRequestError):
    """A feature of the cluster can't have the level that was asked for."""

    kafka_code = 95


class TelemetryThrottledError(TailraceError):
    """A Kafka client pushes its metrics more often than it was asked to, or too many push them at the same time."""

    kafka_code = 89
    http_status = 429
    retriable = True


class UnknownSubscriptionError(InvalidRequestError):
    """A Kafka client pushes metrics for a subscription that is not in force. It must ask for the one that is."""

    kafka_code = 117


class TelemetryTooLargeError(LimitExceededError):
    """A Kafka client pushes metrics that are larger than it was told."""

    kafka_code = 118
    http_status = 413


class AuthenticationError(TailraceError):
    """The client has not shown who it is: nothing, a wrong password, an expired token. It is not told which."""

    kafka_code = 58
    http_status = 401


class UnsupportedMechanismError(InvalidRequestError):
    """The server does not offer this mechanism of SASL, or not without TLS."""

    kafka_code = 33


class IllegalSaslStateError(InvalidRequestError):
    """A Kafka client sends a request of SASL that does not belong there, or one that needs a login without any."""

    kafka_code = 34


class ForbiddenError(TailraceError):
    """The principal of the request may not do that. Somebody with the right to do so must grant it."""

    kafka_code = 31
    http_status = 403
    sqlstate = "42501"


class TopicForbiddenError(ForbiddenError):
    """The principal may not do that with the topic, which may exist or not."""

    kafka_code = 29


class GroupForbiddenError(ForbiddenError):
    """The principal may not do that with the consumer group, which may exist or not."""

    kafka_code = 30


class TransactionalIdForbiddenError(ForbiddenError):
    """The principal may not use the transactional id."""

    kafka_code = 53


class UnknownUserError(InvalidRequestError):
    """There is no such user, role or token."""

    kafka_code = 91
    http_status = 404
    sqlstate = "42704"


class UserExistsError(TailraceError):
    """A user or role of that name exists."""

    kafka_code = 92
    http_status = 409
    sqlstate = "42710"


class LastAdministratorError(TailraceError):
    """The change would leave no administrator, or none who can log in. Make another one first."""

    kafka_code = 44
    http_status = 409
    sqlstate = "55006"


class UnacceptableCredentialError(InvalidRequestError):
    """The password or verifier can't be stored: it is empty, too long, or has too few or too many iterations."""

    kafka_code = 93


class QuotaExceededError(TailraceError):
    """The user or client has used up its quota, or has as many connections or transactions as it may. Try again later."""

    kafka_code = 89
    http_status = 429
    retriable = True
    sqlstate = "53400"

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class TransactionQuotaExceededError(QuotaExceededError):
    """The user has as many open transactions as its quota allows. Kafka's clients wait until one has ended."""

    kafka_code = 51


class UnsupportedQuotaEntityError(InvalidRequestError):
    """Quotas are asked for of something that can have none."""

    kafka_code = 35


class ReservedTopicError(InvalidRequestError):
    """The topic belongs to the server. Only the server creates it, writes to it and deletes it."""

    kafka_code = 44
    http_status = 403


class UnknownTopicError(TailraceError):
    """There is no such topic or alias."""

    kafka_code = 3
    http_status = 404
    retriable = True


class FencedTopicError(TailraceError):
    """The topic takes no records while it is cut over to a Kafka. Try again after a pause: it takes seconds, or is given up."""

    kafka_code = 19
    http_status = 503
    retriable = True


class CutOverTopicError(TailraceError):
    """The topic was cut over to a Kafka and takes no records here any more. Send them there."""

    kafka_code = 44
    http_status = 409


class UnknownTopicIdError(UnknownTopicError):
    """There is no topic with this id: it was deleted, and perhaps created again with another id."""

    kafka_code = 100


class ReadOnlyTopicError(UnknownTopicError):
    """The name is a pattern, which Kafka clients read as a topic. There is no such topic to write to or to change."""

    kafka_code = 17
    http_status = 400
    retriable = False


class UnknownPartitionError(UnknownTopicError):
    """The topic exists, but not the partition."""

    @classmethod
    def of(cls, partition: str) -> "UnknownPartitionError":
        """Build the error for a partition, named as `TopicNames.of` does."""
        return cls(f"there is no {partition}")


class TopicExistsError(TailraceError):
    """A topic or alias of that name exists, with other settings than the request."""

    kafka_code = 36
    http_status = 409


class OffsetOutOfRangeError(TailraceError):
    """The offset is below the partition's start, which retention moves, or above its end."""

    kafka_code = 1
    http_status = 416

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end

    @classmethod
    def of(cls, partition: str, offset: int, start: int, end: int) -> "OffsetOutOfRangeError":
        """Build the error for a partition, named as `TopicNames.of` does."""
        return cls(f"{partition} holds offsets {start} to {end}, not {offset}", start, end)


class CursorOutOfRangeError(TailraceError):
    """The cursor is beyond the end of the log."""

    kafka_code = 1
    http_status = 416

    def __init__(self, message: str, end: int) -> None:
        super().__init__(message)
        self.end = end


class MessageTooLargeError(LimitExceededError):
    """A record or batch is larger than its topic allows."""

    kafka_code = 10
    http_status = 413


class CorruptBatchError(InvalidRequestError):
    """A record batch does not match its checksum or length, or a stored batch can't be decoded."""

    kafka_code = 2
    retriable = True


class InvalidRecordsError(CorruptBatchError):
    """A request has not one batch for each partition, or the records of a batch are not as its head says."""

    kafka_code = 87
    retriable = False


class UnsupportedBatchError(InvalidRequestError):
    """A record batch in a format that Tailrace does not store."""

    kafka_code = 87


class UnsupportedCodecError(UnsupportedBatchError):
    """A record batch has an unknown compression codec."""

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
    """The producer id was not assigned by this server, or its state has expired."""

    kafka_code = 59
    http_status = 409


class InvalidTransactionalIdError(InvalidRequestError):
    """The transactional id is empty or too long."""


class InvalidTransactionTimeoutError(InvalidRequestError):
    """The transaction's timeout is invalid."""

    kafka_code = 50


class InvalidTransactionStateError(TailraceError):
    """The transaction is in a state that does not allow the request."""

    kafka_code = 48
    http_status = 409


class UnknownTransactionalIdError(TailraceError):
    """There is no such transactional id."""

    kafka_code = 105
    http_status = 404


class ProducerMappingError(TailraceError):
    """The producer id does not belong to the transactional id."""

    kafka_code = 49
    http_status = 409


class TransactionFencedError(TailraceError):
    """A newer producer took over the transactional id, or the transaction timed out."""

    kafka_code = 90
    http_status = 409


class PipelineFencedError(TailraceError):
    """Another process runs this pipeline."""

    kafka_code = 44
    http_status = 409


class PipelineConflictError(TailraceError):
    """A step of a pipeline does not begin at the pipeline's mark. The pipeline starts again from its mark."""

    kafka_code = 44
    http_status = 409


class InvalidGroupNameError(InvalidRequestError):
    """The consumer group's name is not legal."""

    kafka_code = 24


class UnknownGroupError(TailraceError):
    """There is no such consumer group."""

    kafka_code = 69
    http_status = 404


class UnknownMemberError(TailraceError):
    """The member is not in the consumer group: it never joined, was silent for too long, or left."""

    kafka_code = 25
    http_status = 409


class IllegalGenerationError(TailraceError):
    """The member's generation is not the current one of its group."""

    kafka_code = 22
    http_status = 409


class FencedInstanceError(TailraceError):
    """Another client took over the name of this static member."""

    kafka_code = 82
    http_status = 409


class RebalanceInProgressError(TailraceError):
    """The group rebalances. The member must join again."""

    kafka_code = 27
    http_status = 409
    retriable = True


class MemberIdRequiredError(TailraceError):
    """A new member must join again with the id in `member_id`."""

    kafka_code = 79
    http_status = 409
    retriable = True

    def __init__(self, message: str, member_id: str) -> None:
        super().__init__(message)
        self.member_id = member_id


class InconsistentProtocolError(InvalidRequestError):
    """The member supports no assignment protocol that all other members of its group support."""

    kafka_code = 23


class InvalidSessionTimeoutError(InvalidRequestError):
    """The member's session timeout is shorter or longer than the server allows."""

    kafka_code = 26


class GroupFullError(LimitExceededError):
    """The group has the maximum number of members."""

    kafka_code = 81


class FencedMemberEpochError(TailraceError):
    """The member's epoch is not the one that its group knows. It must give up its partitions and join again."""

    kafka_code = 110
    http_status = 409


class UnreleasedInstanceError(TailraceError):
    """The name of this static member belongs to another member, which has not left."""

    kafka_code = 111
    http_status = 409


class UnsupportedAssignorError(InvalidRequestError):
    """The server has no assignor of this name."""

    kafka_code = 112


class StaleMemberEpochError(TailraceError):
    """The member's epoch is not its current one. The member gets that with its next heartbeat, and may try again."""

    kafka_code = 113
    http_status = 409
    retriable = True


class InvalidRegularExpressionError(InvalidRequestError):
    """The regular expression of a Kafka client is not valid, or too large."""

    kafka_code = 128


class GroupNotEmptyError(TailraceError):
    """The group has members and can't be deleted."""

    kafka_code = 68
    http_status = 409


class GroupSubscribedError(TailraceError):
    """Offsets of a topic that members of the group read can't be deleted."""

    kafka_code = 86
    http_status = 409


class OffsetMetadataTooLargeError(LimitExceededError):
    """The metadata of a committed offset is longer than `offset_metadata_bytes`."""

    kafka_code = 12


class NoCommittedOffsetError(TailraceError):
    """The group has committed no offset, and its consumer was told not to choose a start itself."""

    kafka_code = 1
    http_status = 409


class OffsetRegressionError(TailraceError):
    """A commit would move the committed offset back, and the request does not ask for a reset."""

    kafka_code = 42
    http_status = 409


class UnstableOffsetsError(TailraceError):
    """An open transaction holds offsets for this partition."""

    kafka_code = 88
    http_status = 409
    retriable = True


class LateReceiptError(TailraceError):
    """The receipt is no longer valid: its timeout has passed, or the record was delivered again or is done."""

    kafka_code = 121
    http_status = 409

    def __init__(self, message: str, refused: Sequence[object] = ()) -> None:
        """`refused` holds each rejected receipt with the reason, if several were sent."""
        super().__init__(message)
        self.refused = refused


class SqlError(InvalidRequestError):
    """A statement can't be executed: an unknown column, a wrong type, a value that does not fit.

    `sqlstate` is PostgreSQL's code of the error, or of its class if there is no error of the same meaning.
    """

    default_sqlstate: ClassVar[str] = "42000"

    def __init__(
        self, message: str, line: int | None = None, column: int | None = None, *, sqlstate: str | None = None
    ) -> None:
        """`line` and `column` are the place in the text, counted from 1. The message begins with them."""
        super().__init__(message if line is None else f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column
        self.sqlstate = sqlstate or self.default_sqlstate


class SqlSyntaxError(SqlError):
    """The text is not a statement of Tailrace's SQL. The message says where, and what was expected there."""

    default_sqlstate = "42601"


class UnsupportedSqlError(SqlError):
    """The statement, clause or function exists but is not allowed here."""

    default_sqlstate = "0A000"


class SqlForbiddenError(ForbiddenError, SqlError):
    """The principal may not run the statement on what it names, which may exist or not."""

    default_sqlstate = "42501"
    operation: str = ""
    resource: str = ""
    """What was denied on what, for the audit."""


class QueryLimitError(SqlError):
    """A query took more time, memory or rows than the limits allow. The message names the limit."""

    default_sqlstate = "54000"
    http_status = 422


class ConstraintError(SqlError):
    """A row breaks a constraint of its table: its key exists already, or a column must not be null."""

    default_sqlstate = "23000"
    http_status = 409
    row: int | None = None
    """Which row of many it is, counted from 0, if that is known."""
    rows: Sequence[int] = ()
    """All such rows, if they are known."""


class InvalidRowError(SqlError):
    """A row of COPY can't be stored: one of its values is invalid for its column, or it breaks a constraint."""

    http_status = 422

    def __init__(self, reason: str, row: int, column_name: str | None, value: str | None, sqlstate: str) -> None:
        """`row` is counted from 0 in the rows of the request."""
        place = f"row {row + 1}" if column_name is None else f"row {row + 1}, column {column_name}"
        super().__init__(f"{place}: {reason}")
        self.row = row
        self.column_name = column_name
        self.value = value
        self.reason = reason
        self.sqlstate = sqlstate


class CopyStoppedError(TailraceError):
    """COPY stopped before the end of its file. `rows` are in the table; `next_line` is the first line of which nothing is, and
    where to go on."""

    http_status = 422

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        line: int | None = None,
        column_name: str | None = None,
        value: str | None = None,
        rows: int = 0,
        next_line: int = 1,
        unknown_until: int | None = None,
    ) -> None:
        """`unknown_until` is the last line that may be in the table, all from `next_line` on or none of them."""
        super().__init__(message)
        self.reason = reason
        self.line = line
        self.column_name = column_name
        self.value = value
        self.rows = rows
        self.next_line = next_line
        self.unknown_until = unknown_until


class UnknownTableError(SqlError):
    """There is no such table."""

    default_sqlstate = "42P01"
    kafka_code = 3
    http_status = 404


class TableExistsError(SqlError):
    """A table, topic or alias of that name exists."""

    default_sqlstate = "42P07"
    kafka_code = 36
    http_status = 409


class TableAlteredError(SqlError):
    """A table was altered or dropped between the planning of a statement and its run. Nothing took effect."""

    default_sqlstate = "40001"
    kafka_code = 56
    http_status = 503
    retriable = True

    @classmethod
    def of(cls, name: str) -> "TableAlteredError":
        return cls(
            f"table {name!r} was altered or dropped while the statement was planned, and nothing was done; send it again"
        )


class TablesBehindError(TailraceError):
    """The tables lack changes of the log and are catching up. A change that the request asked for may be among them."""

    kafka_code = 56
    http_status = 503
    retriable = True
    outcome = "unknown"


class TablesDamagedError(TailraceError):
    """The file of the tables is damaged and is being rebuilt from the log. Nothing was read or written."""

    kafka_code = 56
    http_status = 503
    retriable = True


class UnknownSourceError(SqlError):
    """There is no such source."""

    default_sqlstate = "42704"
    http_status = 404


class SourceExistsError(SqlError):
    """A source of that name exists."""

    default_sqlstate = "42710"
    http_status = 409


class SourceFencedError(TailraceError):
    """Another process captures this source."""

    kafka_code = 44
    http_status = 409


class UnknownShadowError(SqlError):
    """There is no such shadow."""

    default_sqlstate = "42704"
    http_status = 404


class ShadowExistsError(SqlError):
    """A shadow of that name exists, or one that copies the same topics between the same clusters."""

    default_sqlstate = "42710"
    http_status = 409


class ShadowFencedError(TailraceError):
    """Another process copies this shadow."""

    kafka_code = 44
    http_status = 409


class ShadowPhaseError(SqlError):
    """The shadow is in a phase in which this can't be done: a cut-over is under way, was given up, or is done."""

    default_sqlstate = "55000"
    kafka_code = 44
    http_status = 409


class UnknownRouteError(SqlError):
    """There is no such route."""

    http_status = 404


class RouteExistsError(SqlError):
    """An identical route exists."""

    http_status = 409


class RoutedError(SqlError):
    """The table, column or topic can't be dropped or changed, because routes use it."""

    default_sqlstate = "2BP01"
    kafka_code = 44
    http_status = 409


class DependentViewsError(SqlError):
    """A table, topic or view can't be dropped or changed, because views use it."""

    default_sqlstate = "2BP01"
    kafka_code = 44
    http_status = 409


class SequencingError(TailraceError):
    """A commit has offsets that are no longer the next ones. Its sender must read the offsets again and rebuild it."""

    kafka_code = 56
    http_status = 503
    retriable = True


class OverloadedError(TailraceError):
    """A queue is full. Nothing was accepted; try again after a pause."""

    kafka_code = 7
    http_status = 503
    retriable = True


class StorageFullError(TailraceError):
    """The disk is full. Nothing was written; writes work again when there is space."""

    kafka_code = 56
    http_status = 507
    retriable = True


class StorageFailedError(TailraceError):
    """A write or sync failed and the store has stopped. Commits in flight may or may not exist after the restart."""

    kafka_code = 56
    http_status = 503
    retriable = True
    outcome = "unknown"


class StorageReadError(TailraceError):
    """A file of the store can't be read. Its content may be intact: check the disk."""

    kafka_code = 56


class StoreClosedError(TailraceError):
    """The store is closed or closing and accepts nothing new."""

    kafka_code = 8
    http_status = 503
    retriable = True


class FolderInUseError(TailraceError):
    """Another process has the data folder open."""


class FormatError(TailraceError):
    """The data folder was written in a format that this version can't read."""


class CorruptionError(TailraceError):
    """Stored bytes differ from what was written. They are reported and never served."""

    kafka_code = 2


class LostEndError(CorruptionError):
    """The log ends before a position up to which it was synced: acknowledged records are lost."""

    def __init__(self, message: str, end: int, *, can_be_accepted: bool = False) -> None:
        """`end` is the position up to which the log can be read."""
        super().__init__(message)
        self.end = end
        self.can_be_accepted = can_be_accepted

    def acceptable(self) -> "LostEndError":
        """Return the error for a case in which a server can start without what is lost."""
        message = f"{self}; or start once with --accept-loss-after {self.end} to go on without what is lost"
        return LostEndError(message, self.end, can_be_accepted=True)


class LostPayloadError(CorruptionError):
    """The payload of a record, which is kept beside the log, is missing or damaged. The records after it can be read."""

    def __init__(self, message: str, next_offset: int | None = None) -> None:
        """`next_offset` is where to continue, if it is known which record it is."""
        super().__init__(message)
        self.next_offset = next_offset


class UnreadableBatchError(CorruptionError):
    """The records of a stored batch can't be decoded although its checksum is right. Those before and after it can be read."""

    def __init__(self, message: str, next_offset: int | None = None) -> None:
        """`next_offset` is where to continue."""
        super().__init__(message)
        self.next_offset = next_offset


class MalformedMessageError(InvalidRequestError):
    """The lengths and counts of a Kafka message do not fit its bytes."""


class UnanswerableRequestError(InvalidRequestError):
    """A Kafka request has an API key or version that can only be answered by closing the connection."""

    kafka_code = 35


class UnknownLeaderEpochError(TailraceError):
    """The client knows a newer leader epoch of the partition than the server."""

    kafka_code = 75
    http_status = 409
    retriable = True


class UnknownFetchSessionError(TailraceError):
    """There is no such fetch session, or it was evicted."""

    kafka_code = 70
    http_status = 409
    retriable = True


class FetchSessionEpochError(TailraceError):
    """A request of a fetch session has the wrong epoch."""

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
    """A client does not trust the certificate of the server, or the server does not use TLS. Nothing was sent."""

    http_status = 502


class ConnectionLostError(TailraceError):
    """The connection to the server broke before its answer came. The request may have taken effect."""

    kafka_code = 13
    http_status = 503
    retriable = True
    outcome = "unknown"


class TimeoutError(TailraceError, builtins.TimeoutError):
    """A client got no answer within its timeout. The request may have taken effect."""

    kafka_code = 7
    http_status = 504
    retriable = True
    outcome = "unknown"


class SlowSubscriberError(TailraceError):
    """A subscriber read nothing of what it was sent for too long, and was disconnected."""

    http_status = 503
    retriable = True


class ClientClosedError(InvalidRequestError):
    """A consumer, publisher or subscription of the client was used after it was closed."""


class InvariantError(RuntimeError):
    """An invariant of the program is violated. The only safe reaction is to stop."""


def invariant(condition: object, message: str) -> None:
    """Raise `InvariantError` unless the condition holds. Unlike `assert` it also works under `python -O`."""
    if not condition:
        raise InvariantError(message)
