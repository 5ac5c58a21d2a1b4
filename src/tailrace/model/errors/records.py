"""What can be wrong with records and record batches that come in."""

from tailrace.model.errors.base import InvalidRequestError, LimitExceededError


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
