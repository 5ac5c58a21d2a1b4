"""What can be wrong with records and record batches that come in."""

from tailrace.model.errors.base import InvalidRequestError, LimitExceededError


class MessageTooLargeError(LimitExceededError):
    """A record or batch is larger than its topic takes."""

    kafka_code = 10
    http_status = 413


class CorruptBatchError(InvalidRequestError):
    """A record batch that came in does not match its own checksum or its own lengths."""

    kafka_code = 2
    retriable = True


class InvalidRecordsError(InvalidRequestError):
    """The records of a produce request are not exactly one batch for each partition."""

    kafka_code = 87


class UnsupportedBatchError(InvalidRequestError):
    """A record batch in a format that Tailrace does not store."""

    kafka_code = 87


class UnsupportedCodecError(UnsupportedBatchError):
    """A record batch is compressed in a way that Tailrace does not know."""

    kafka_code = 76


class InvalidTimestampError(InvalidRequestError):
    """A record's timestamp is negative or too far in the future."""

    kafka_code = 32
