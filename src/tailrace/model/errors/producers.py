"""Idempotent producers, transactions and pipelines: who may write, and what comes next."""

from tailrace.model.errors.base import InvalidRequestError, TailraceError


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
