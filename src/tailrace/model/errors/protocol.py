"""What can be wrong with a Kafka request as such, and with the fetch session that it belongs to."""

from tailrace.model.errors.base import InvalidRequestError, TailraceError


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
