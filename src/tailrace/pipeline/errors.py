"""What fails in the pipeline itself, as a person reads it in the message of a failed query.

Failures of requests to the server are errors of the tree in `model/errors`.
"""

from tailrace.model.errors import TailraceError, UnknownPartitionError, UnknownTopicError


class PipelineError(Exception):
    """Base class of the errors of the pipeline itself."""


class OptionError(PipelineError):
    """An option of the data source has a value that it can't have."""


class CorruptDataError(PipelineError):
    """Records that were to be read can't be decoded."""


class DataLossError(PipelineError):
    """Records that were to be read are no longer there."""


class SparkError(PipelineError):
    """Spark can't be started, or can't run our tasks. Trying again does not help; the message says what does."""


def is_topic_gone(error: TailraceError) -> bool:
    """Return whether the topic was deleted. Another one may have its name."""
    return isinstance(error, UnknownTopicError) and not isinstance(error, UnknownPartitionError)
