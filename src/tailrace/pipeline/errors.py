"""What can go wrong between Spark and the server, as a person reads it in the message of a failed query."""


class PipelineError(Exception):
    """Root of the errors of this room."""


class OptionError(PipelineError):
    """An option of the data source has a value that it can't have."""


class ServerUnreachableError(PipelineError):
    """The server did not answer for as long as the client is patient."""


class UntrustedServerError(PipelineError):
    """There is no TLS with the server, or its certificate is not trusted."""


TOPIC_GONE = ("unknown-topic", "unknown-topic-id")
"""The kinds of a refusal that says: the topic was deleted, and perhaps another one has its name."""


class RefusedError(PipelineError):
    """The server has refused a request, and would refuse it again."""

    def __init__(self, message: str, status: int, kind: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        """`offset-out-of-range`, `pipeline-fenced` and so on: the error's name in the reference."""

    def __reduce__(self) -> tuple[type["RefusedError"], tuple[str, int, str]]:
        return type(self), (str(self), self.status, self.kind)


class CorruptDataError(PipelineError):
    """Records that were to be read can't be decoded."""


class DataLossError(PipelineError):
    """Records that were to be read are gone."""


class SparkError(PipelineError):
    """Spark can't be started, or can't run our tasks. Trying again does not help; the message says what does."""
