"""What can go wrong with a copy. Each failure says what happened, what to do and whether waiting helps."""

from typing import Literal, NamedTuple

from tailrace.model.errors import TailraceError

FailureState = Literal["retrying", "failed"]


class ShadowError(Exception):
    """Why a shadow can't be copied now."""

    def __init__(self, message: str, advice: str, *, state: FailureState = "retrying") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.state: FailureState = state
        """`retrying` may pass by itself, `failed` does not. Both are tried again, with a growing pause."""


class UnreachableError(ShadowError):
    """A cluster can't be reached, or a connection to it was lost."""


class FencedError(ShadowError):
    """Another process writes with the transactional id of the shadow."""


class KafkaRefusalError(ShadowError):
    """A cluster has answered a request with an error."""

    def __init__(self, code: int, what: str, detail: str | None = None) -> None:
        known = _KNOWN.get(code, _UNKNOWN)
        self.code = code
        self.name = known.name if code in _KNOWN else f"error {code}"
        super().__init__(f"{what}: {self.name}{f' ({detail})' if detail else ''}", known.advice, state=known.state)


class TopicRefusedError(ShadowError):
    """The target does not take records of a topic. Others are not concerned."""

    def __init__(self, topic: str, message: str, advice: str) -> None:
        super().__init__(message, advice, state="failed")
        self.topic = topic


class _Known(NamedTuple):
    name: str
    advice: str
    state: FailureState = "retrying"


_WAIT = "It is tried again by itself"
_GRANT = "Grant the user of the shadow what it lacks, or ask whoever runs this Kafka to do so"
_UNKNOWN = _Known("an unknown error", "It is tried again by itself. See the log of the broker")

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
UNKNOWN_MEMBER_ID = 25
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_CONFIG = 40
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
FETCH_SESSION_TOPIC_ID_ERROR = 106

LEADER_MOVES = {5, 6, 9, 56, 74, 75, 76, 78}
"""Errors after which another broker, or the same one later, has the partition."""
COORDINATOR_MOVES = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
FENCED = {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
OF_ONE_TOPIC = {10, 17, 18, 29, 32, 43, 44, 76, 87}
"""Errors of a produce that other topics are not concerned by."""
TOPIC_GONE = {UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID}

_KNOWN = {
    -1: _Known("UNKNOWN_SERVER_ERROR", "It is tried again by itself. See the log of the broker"),
    1: _Known("OFFSET_OUT_OF_RANGE", _WAIT),
    2: _Known("CORRUPT_MESSAGE", "It is tried again by itself. If it lasts, see the log of the broker"),
    3: _Known("UNKNOWN_TOPIC_OR_PARTITION", "It is tried again by itself. If it lasts, the topic was deleted"),
    5: _Known("LEADER_NOT_AVAILABLE", _WAIT),
    6: _Known("NOT_LEADER_OR_FOLLOWER", _WAIT),
    7: _Known("REQUEST_TIMED_OUT", _WAIT),
    8: _Known("BROKER_NOT_AVAILABLE", _WAIT),
    9: _Known("REPLICA_NOT_AVAILABLE", _WAIT),
    10: _Known("MESSAGE_TOO_LARGE", "Raise max.message.bytes of the topic in the target (kafka-configs --alter)"),
    12: _Known("OFFSET_METADATA_TOO_LARGE", "Raise offset.metadata.max.bytes of the brokers to 4096, Kafka's default"),
    14: _Known("COORDINATOR_LOAD_IN_PROGRESS", _WAIT),
    15: _Known("COORDINATOR_NOT_AVAILABLE", _WAIT),
    16: _Known("NOT_COORDINATOR", _WAIT),
    17: _Known("INVALID_TOPIC_EXCEPTION", "Leave the topic out of the shadow's patterns", "failed"),
    18: _Known("RECORD_LIST_TOO_LARGE", "Raise segment.bytes of the topic in the target", "failed"),
    19: _Known("NOT_ENOUGH_REPLICAS", "It is tried again by itself. Too few replicas of the topic are in sync for acks=all"),
    20: _Known("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "It is tried again by itself. Too few replicas of the topic are in sync"),
    22: _Known("ILLEGAL_GENERATION", _WAIT),
    25: _Known("UNKNOWN_MEMBER_ID", _WAIT),
    27: _Known("REBALANCE_IN_PROGRESS", _WAIT),
    29: _Known(
        "TOPIC_AUTHORIZATION_FAILED", f"{_GRANT}: READ, WRITE, CREATE, DESCRIBE and DESCRIBE_CONFIGS on topics", "failed"
    ),
    30: _Known("GROUP_AUTHORIZATION_FAILED", f"{_GRANT}: READ and DESCRIBE on groups", "failed"),
    31: _Known("CLUSTER_AUTHORIZATION_FAILED", f"{_GRANT}: CREATE and DESCRIBE on the cluster", "failed"),
    32: _Known(
        "INVALID_TIMESTAMP",
        "A record's timestamp is further ahead of the clock than the target takes: raise message.timestamp.after.max.ms"
        " of the topic there, or timestamp_ahead_ms of Tailrace",
    ),
    35: _Known("UNSUPPORTED_VERSION", "Use Kafka 2.8 or newer", "failed"),
    36: _Known("TOPIC_ALREADY_EXISTS", _WAIT),
    37: _Known("INVALID_PARTITIONS", _WAIT),
    38: _Known("INVALID_REPLICATION_FACTOR", "Start more brokers, or lower default.replication.factor", "failed"),
    40: _Known("INVALID_CONFIG", "Create the topic in the target yourself, with the same number of partitions", "failed"),
    41: _Known("NOT_CONTROLLER", _WAIT),
    42: _Known("INVALID_REQUEST", "It is tried again by itself. See the log of the broker"),
    43: _Known("UNSUPPORTED_FOR_MESSAGE_FORMAT", "The topic has records of a format from before Kafka 0.11", "failed"),
    44: _Known("POLICY_VIOLATION", "Create the topic in the target yourself, as its policy demands", "failed"),
    45: _Known("OUT_OF_ORDER_SEQUENCE_NUMBER", _WAIT),
    46: _Known("DUPLICATE_SEQUENCE_NUMBER", _WAIT),
    47: _Known("INVALID_PRODUCER_EPOCH", _WAIT),
    48: _Known("INVALID_TXN_STATE", _WAIT),
    49: _Known("INVALID_PRODUCER_ID_MAPPING", _WAIT),
    50: _Known("INVALID_TRANSACTION_TIMEOUT", "Raise transaction.max.timeout.ms of the brokers to a minute or more", "failed"),
    51: _Known("CONCURRENT_TRANSACTIONS", _WAIT),
    52: _Known("TRANSACTION_COORDINATOR_FENCED", _WAIT),
    53: _Known("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", f"{_GRANT}: WRITE on the transactional id", "failed"),
    56: _Known("KAFKA_STORAGE_ERROR", "It is tried again by itself. A disk of the broker has failed or is full"),
    58: _Known("SASL_AUTHENTICATION_FAILED", "Check the user and the password of the shadow", "failed"),
    59: _Known("UNKNOWN_PRODUCER_ID", _WAIT),
    69: _Known("GROUP_ID_NOT_FOUND", _WAIT),
    74: _Known("FENCED_LEADER_EPOCH", _WAIT),
    75: _Known("UNKNOWN_LEADER_EPOCH", _WAIT),
    76: _Known("UNSUPPORTED_COMPRESSION_TYPE", "The target does not take a codec of the origin", "failed"),
    78: _Known("OFFSET_NOT_AVAILABLE", _WAIT),
    87: _Known(
        "INVALID_RECORD", "The target does not take a record as it is: a compacted topic takes only records with keys", "failed"
    ),
    88: _Known("UNSTABLE_OFFSET_COMMIT", _WAIT),
    89: _Known("THROTTLING_QUOTA_EXCEEDED", _WAIT),
    90: _Known("PRODUCER_FENCED", _WAIT),
    100: _Known("UNKNOWN_TOPIC_ID", _WAIT),
    103: _Known("INCONSISTENT_TOPIC_ID", _WAIT),
}
"""The errors of Kafka that a copy may meet."""


def server_failure(error: TailraceError) -> ShadowError:
    """Return the failure that an error of the Tailrace server's own API means."""
    return ShadowError(f"the server does not answer: {error}", "It is tried again by itself. See the log of the server")
