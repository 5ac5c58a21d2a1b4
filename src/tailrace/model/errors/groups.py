"""Consumer groups: their members, their committed offsets, and the receipts of queues."""

from collections.abc import Sequence

from tailrace.model.errors.base import InvalidRequestError, LimitExceededError, TailraceError


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
