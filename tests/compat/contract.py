"""What a scenario may ask of a client: the verbs, their values and the two ways to say no.

An adapter subclasses `Client` and overrides the verbs that its client can express. It runs in a process of its own
(`tests.compat.process`), so that it can be killed, and so that a Java client is asked in the same words as a Python one.
A process holds at most one member of a group and one transactional producer.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = list[tuple[str, bytes | None]]

MISSING = -1
"""An offset that there is none of."""
NOT_KAFKA = -1000
"""The code of an error of the client that stands for none of Kafka's."""
ILLEGAL_GENERATION = 22
"""Also the code of clients that notice by themselves that the group has moved on."""
PRODUCER_FENCED = 90
"""Also the code of clients that have an error of their own for it."""


class Outgoing(NamedTuple):
    """A record to produce. Without a partition the client's partitioner picks one."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Incoming(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Start(NamedTuple):
    """Where to begin reading a partition."""

    at: Literal["beginning", "end", "offset", "time"]
    value: int = 0


class Bounds(NamedTuple):
    earliest: int
    latest: int


class GroupState(NamedTuple):
    state: str
    members: int


class WriterState(NamedTuple):
    """A producer, as a partition remembers it."""

    producer_id: int
    open_since: int
    """The first offset of its open transaction, or `MISSING`."""


class TransactionState(NamedTuple):
    state: str
    """Kafka's name for it, in small letters."""
    partitions: list[tuple[str, int]]


class Unsupported(Exception):
    """The client can not express it. The message is the reason that the grid shows."""


class Refused(Exception):
    """The client reported an error. `code` is Kafka's number for it, the message is the client's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client:
    """All verbs. Each fails with the client's own exception, which `code_of` names."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @classmethod
    def version(cls) -> str:
        raise NotImplementedError

    def code_of(self, error: Exception) -> int:
        """Kafka's number of the error that the client's exception stands for."""
        raise NotImplementedError

    # Records

    def produce(self, topic: str, records: list[Outgoing], codec: Codec = "none", max_bytes: int | None = None) -> None:
        """Send all and wait until the server has them. `max_bytes` raises the client's own limit."""
        raise Unsupported("it has no producer")

    def produce_idempotent(self, topic: str, records: list[Outgoing]) -> None:
        raise Unsupported("it has no idempotent producer")

    def read(self, topic: str, partition: int, start: Start, count: int, committed_only: bool = False) -> list[Incoming]:
        """`count` records, or fewer if no more come. No group is involved."""
        raise Unsupported("it has no consumer")

    def position(self, topic: str, partition: int, start: Start) -> int:
        """Return the position of a consumer that was set to start there."""
        raise Unsupported("it does not tell its position")

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """`MISSING` if no record is that young."""
        raise Unsupported("it can not look up offsets by time")

    def newest(self, topic: str, partition: int) -> int:
        """The offset of the first record with the highest timestamp."""
        raise Unsupported("it can not look up the highest timestamp")

    def consume(self, group: str, topic: str, count: int) -> list[Incoming]:
        """As a member of the group: read so many records, commit them, and leave."""
        self.join(group, topic)
        found = self.poll(count, 60)
        self.commit()
        self.leave()
        return found

    # A member of a group

    def join(
        self, group: str, topic: str, session_ms: int = 10_000, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        """Subscribe, from the beginning where nothing is committed. Commits happen only when asked for.

        With `hand_over` the member also commits what was polled before it gives partitions away. With an `instance_id` it is a
        static member.
        """
        raise Unsupported("it has no consumer groups")

    def join_by_consumer_protocol(
        self, group: str, topic: str, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        """Do what `join` does, by the protocol of KIP-848: the server assigns, and decides how long a session is."""
        raise Unsupported("it has only the classic group protocol")

    def poll(self, count: int, seconds: float) -> list[Incoming]:
        """Up to `count` records, after `seconds` what there is."""
        raise Unsupported("it has no consumer groups")

    def owned(self) -> list[int]:
        raise Unsupported("it does not tell its assignment")

    def commit(self) -> None:
        """What was polled so far."""
        raise Unsupported("it can not be told when to commit")

    def leave(self) -> None:
        raise Unsupported("it has no consumer groups")

    # Streams

    def stream(self, source: str, target: str, checkpoint: str) -> None:
        """Copy what the source has gained since the last run, in capitals, and stop. `checkpoint` is a folder."""
        raise Unsupported("it has no streaming queries")

    # Topics

    def topics(self) -> list[str]:
        raise Unsupported("it can not list topics")

    def partitions(self, topic: str) -> int:
        raise Unsupported("it can not count partitions")

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        raise Unsupported("it can not create topics")

    def delete_topic(self, topic: str) -> None:
        raise Unsupported("it can not delete topics")

    def add_partitions(self, topic: str, total: int) -> None:
        raise Unsupported("it can not add partitions")

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        raise Unsupported("it can not describe configs")

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        raise Unsupported("it can not alter configs")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        raise Unsupported("it can not delete records")

    def bounds(self, topic: str, partition: int) -> Bounds:
        raise Unsupported("it can not list offsets")

    def brokers(self) -> int:
        raise Unsupported("it can not describe the cluster")

    def log_dir_sizes(self, topic: str) -> list[tuple[int, int]]:
        """Partitions and their bytes on disk."""
        raise Unsupported("it can not describe log directories")

    # Groups

    def groups(self) -> list[str]:
        raise Unsupported("it can not list groups")

    def describe_group(self, group: str) -> GroupState:
        raise Unsupported("it can not describe groups")

    def delete_group(self, group: str) -> None:
        raise Unsupported("it can not delete groups")

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        """Partition and committed offset, for those that have one."""
        raise Unsupported("it can not list a group's offsets")

    def set_group_offsets(self, group: str, topic: str, offsets: list[tuple[int, int]]) -> None:
        """For a group that nobody is in."""
        raise Unsupported("it can not alter a group's offsets")

    def delete_group_offsets(self, group: str, topic: str, partitions: list[int]) -> None:
        raise Unsupported("it can not delete a group's offsets")

    # Transactions

    def open_transactions(self, transactional_id: str) -> None:
        """Take the id over from whoever had it."""
        raise Unsupported("it has no transactions")

    def begin(self) -> None:
        raise Unsupported("it has no transactions")

    def send(self, topic: str, records: list[Outgoing]) -> None:
        """In the open transaction; the server has them when it returns."""
        raise Unsupported("it has no transactions")

    def send_offsets(self) -> None:
        """What the member of the group has polled so far becomes part of the transaction."""
        raise Unsupported("it can not put offsets into a transaction")

    def end(self, commit: bool) -> None:
        raise Unsupported("it has no transactions")

    def producers(self, topic: str, partition: int) -> list[WriterState]:
        raise Unsupported("it can not describe producers")

    def transactions(self) -> list[tuple[str, str]]:
        """Transactional ids and the states of their transactions."""
        raise Unsupported("it can not list transactions")

    def describe_transaction(self, transactional_id: str) -> TransactionState:
        raise Unsupported("it can not describe transactions")
