"""What can happen between a client and the server."""

import builtins

from tailrace.model.errors.base import InvalidRequestError, TailraceError


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
