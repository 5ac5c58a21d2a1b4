"""What the client of a request may do, as Kafka's clients are told it: sets of operations and error codes.

The rules that decide are in the broker (`permissions`, and `topics` for names that may be aliases). Most of them are asked by
the broker's services; handlers ask where Kafka's protocol says what is checked, and always before they look anything up, so
that what does not exist and what may not be seen are the same error.
"""

from collections.abc import Callable, Iterable

from tailrace.broker.broker import Broker
from tailrace.kafka.cluster import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CLUSTER_OPERATIONS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP_OPERATIONS,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC_OPERATIONS,
    WRITE,
)
from tailrace.model.errors import ForbiddenError, TailraceError
from tailrace.model.security import CLUSTER, Operation, ResourceKind

_OPERATIONS: dict[int, Operation] = {
    READ: "consume",
    WRITE: "publish",
    CREATE: "create",
    DELETE: "drop",
    ALTER: "alter",
    DESCRIBE: "describe",
    CLUSTER_ACTION: "cluster_action",
    DESCRIBE_CONFIGS: "describe_configs",
    ALTER_CONFIGS: "alter_configs",
    IDEMPOTENT_WRITE: "idempotent_write",
}


class Access:
    def __init__(self, broker: Broker) -> None:
        self._permissions = broker.permissions
        self._topics = broker.topics

    def on_topic(self, name: str) -> int:
        """Return the operations on a topic that the client may do, as bits."""
        if not self._permissions.is_on:
            return TOPIC_OPERATIONS
        return _bits(TOPIC_OPERATIONS, lambda operation: self._topics.may(operation, name))

    def on_group(self, name: str) -> int:
        if not self._permissions.is_on:
            return GROUP_OPERATIONS
        return _bits(GROUP_OPERATIONS, lambda operation: self._permissions.may(operation, "group", name))

    def on_cluster(self) -> int:
        """Return the operations on the cluster, or none if the client may not describe it, as in Kafka."""
        if not self._permissions.is_on:
            return CLUSTER_OPERATIONS
        if not self._permissions.may("describe", "cluster"):
            return 0
        return _bits(CLUSTER_OPERATIONS, lambda operation: self._permissions.may(operation, "cluster"))

    def refusal(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> ForbiddenError | None:
        """Return the error of a request that needs this operation, or `None` if the client may do it."""
        try:
            self._permissions.require(operation, kind, name)
        except ForbiddenError as error:
            return error
        return None

    def may_describe_all(self, topics: Iterable[str]) -> bool:
        return not self._permissions.is_on or all(self._topics.may("describe", name) for name in topics)

    def hides(self, error: TailraceError, operation: Operation, topic: str) -> TailraceError:
        """Return the error for a topic that could not be found or used: that the client has no right, if it has none."""
        try:
            self._topics.require(operation, topic)
        except ForbiddenError as forbidden:
            return forbidden
        return error


def _bits(possible: int, may: Callable[[Operation], bool]) -> int:
    return sum(bit for bit, operation in _OPERATIONS.items() if possible & bit and may(operation))
