"""One member of a group, as the group keeps it."""

from collections.abc import Hashable

from tailrace.model.group import JoinRequest, MemberProtocol, MemberRecord

Ticket = Hashable
"""Stands for a request that waits for its answer; each gets exactly one."""


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "owes_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.assignment = b""
        self.deadline_ms = 0
        """When it counts as gone unless it is heard from."""
        self.is_new = True
        """Has not been part of a generation yet."""
        self.joining: Ticket | None = None
        self.syncing: Ticket | None = None
        self.owes_sync = False
        """Was told of the generation and has not asked for its share yet."""
        self.take(request)

    @classmethod
    def from_record(cls, record: MemberRecord) -> "Member":
        member = cls.__new__(cls)
        member.member_id = record.member_id
        member.instance_id = record.instance_id
        member.client_id = record.client_id
        member.client_host = record.client_host
        member.session_timeout_ms = record.session_timeout_ms
        member.rebalance_timeout_ms = record.rebalance_timeout_ms
        member.protocols = record.protocols
        member.assignment = record.assignment
        member.deadline_ms = 0
        member.is_new = member.owes_sync = False
        member.joining = member.syncing = None
        return member

    def take(self, request: JoinRequest) -> None:
        """What a join says about the member replaces what was known."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = request.protocols

    def record(self, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            assignment,
        )

    @property
    def is_waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None

    @property
    def held_bytes(self) -> int:
        names = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        return names + bytes_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """What it said for this protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


def bytes_of(protocols: tuple[MemberProtocol, ...]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)
