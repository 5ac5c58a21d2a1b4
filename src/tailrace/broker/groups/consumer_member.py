"""A member of a group of the consumer protocol: what it has said of itself, how far it has come, and when it is given up."""

from collections.abc import Collection

from tailrace.broker.groups.assignment import NOTHING_ASSIGNED, Assignment, from_stored, size, to_stored
from tailrace.broker.groups.reconciliation import MemberProgress
from tailrace.model.consumer_group import JOINING_EPOCH, ConsumerHeartbeat, ConsumerMemberRecord

_NAME_BYTES = 16
_PARTITION_BYTES = 32


class ConsumerMember:
    __slots__ = (
        "assignor",
        "client_host",
        "client_id",
        "instance_id",
        "member_id",
        "progress",
        "rack_id",
        "rebalance_timeout_ms",
        "revoke_until_ms",
        "session_until_ms",
        "target",
        "topic_names",
        "topic_pattern",
    )

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = 0
        self.topic_names: tuple[str, ...] = ()
        self.topic_pattern = ""
        self.assignor: str | None = None
        self.progress = MemberProgress(JOINING_EPOCH, JOINING_EPOCH)
        self.target: Assignment = NOTHING_ASSIGNED
        self.session_until_ms = 0
        self.revoke_until_ms: int | None = None
        """Until when it must have given up partitions, if it was asked to."""

    @classmethod
    def from_record(cls, record: ConsumerMemberRecord) -> "ConsumerMember":
        member = cls(record.member_id, record.instance_id)
        member.rack_id = record.rack_id
        member.client_id = record.client_id
        member.client_host = record.client_host
        member.rebalance_timeout_ms = record.rebalance_timeout_ms
        member.topic_names = record.topic_names
        member.topic_pattern = record.topic_pattern
        member.assignor = record.assignor
        member.progress = MemberProgress(
            record.epoch, record.previous_epoch, record.state, from_stored(record.assigned), from_stored(record.revoking)
        )
        member.target = from_stored(record.target)
        return member

    def record(self) -> ConsumerMemberRecord:
        progress = self.progress
        return ConsumerMemberRecord(
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topic_names,
            self.topic_pattern,
            self.assignor,
            progress.epoch,
            progress.previous_epoch,
            progress.state,
            to_stored(progress.assigned),
            to_stored(progress.revoking),
            to_stored(self.target),
        )

    @property
    def subscription(self) -> tuple[frozenset[str], str, str | None]:
        """What the target depends on."""
        return frozenset(self.topic_names), self.topic_pattern, self.assignor

    @property
    def client(self) -> tuple[str, str, str, str | None, int]:
        """What else its heartbeats say."""
        return self.member_id, self.client_id, self.client_host, self.rack_id, self.rebalance_timeout_ms

    @property
    def held_bytes(self) -> int:
        names = sum(map(len, (self.member_id, self.instance_id or "", self.rack_id or "", self.client_id, self.topic_pattern)))
        partitions = size(self.progress.assigned) + size(self.progress.revoking) + size(self.target)
        return names + names_bytes(self.topic_names) + partitions * _PARTITION_BYTES


def heartbeat_bytes(request: ConsumerHeartbeat) -> int:
    """Return the bytes that the group would keep of the request."""
    texts = (request.member_id, request.instance_id, request.rack_id, request.client_id, request.topic_pattern)
    return sum(len(text or "") for text in texts) + names_bytes(request.topic_names or ())


def names_bytes(names: Collection[str]) -> int:
    return sum(map(len, names)) + len(names) * _NAME_BYTES
