"""The store: a full queue, a full or broken disk, a folder that can't be opened, bytes that are not what was written."""

from tailrace.model.errors.base import TailraceError


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
