"""Who is let into a group: checks that change nothing, made before anything is changed."""

from tailrace.broker.groups.member import Member, bytes_of
from tailrace.broker.groups.members import Members
from tailrace.broker.groups.subscription import subscribed_topics
from tailrace.broker.settings import BrokerSettings
from tailrace.model.errors import GroupFullError, InconsistentProtocolError, InvalidSessionTimeoutError, LimitExceededError
from tailrace.model.group import CONSUMER, JoinRequest
from tailrace.model.limits import Limits


class Admission:
    def __init__(self, group: str, members: Members, settings: BrokerSettings, limits: Limits) -> None:
        self._group = group
        self._members = members
        self._settings = settings
        self._limits = limits

    def check_request(self, request: JoinRequest) -> None:
        """What can be said without a look at the group."""
        low, high = self._settings.group_min_session_ms, self._settings.group_max_session_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeoutError(
                f"the session time-out is {request.session_timeout_ms} ms; group_min_session_ms and group_max_session_ms allow"
                f" {low} to {high}"
            )
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocolError("a member must name a protocol type and at least one protocol")

    def check_protocols(self, request: JoinRequest, protocol_type: str, besides: Member | None = None) -> None:
        """Whether the member fits with all others but `besides`, which is the member itself as it was before."""
        others = len(self._members) - (besides is not None)
        if others and request.protocol_type != protocol_type:
            raise InconsistentProtocolError(
                f"the members of group {self._group!r} are of the type {protocol_type!r}, not {request.protocol_type!r}"
            )
        if not self._members.agree_with(request.protocols, besides):
            offered = ", ".join(protocol.name for protocol in request.protocols)
            raise InconsistentProtocolError(
                f"the other members of group {self._group!r} do not all support one of: {offered}. Give all members of a"
                " group a common partition.assignment.strategy"
            )
        replaced = 0 if besides is None else besides.held_bytes
        self.check_bytes(asked_bytes(request) - replaced)

    def check_bytes(self, more: int) -> None:
        size = self._members.held_bytes + more
        if size > self._limits.group_state_bytes:
            raise LimitExceededError(
                f"the members of group {self._group!r} would hold {size} bytes, more than group_state_bytes allows"
                f" ({self._limits.group_state_bytes})"
            )

    def check_room(self, promised: int) -> None:
        """Room for one more member; `promised` are those who were told an id and have not joined with it yet."""
        limit = self._limits.group_members
        if len(self._members) >= limit or promised >= limit:
            raise GroupFullError(
                f"group {self._group!r} has {len(self._members)} members and {promised} that are about to join;"
                f" group_members allows {limit}"
            )

    def bounded(self, request: JoinRequest) -> JoinRequest:
        """Clients of old have no time-out for rebalances; others ask for more than anybody should wait."""
        asked = request.rebalance_timeout_ms
        patience = request.session_timeout_ms if asked <= 0 else min(asked, self._limits.rebalance_timeout_ms)
        return request._replace(rebalance_timeout_ms=patience)


def asked_bytes(request: JoinRequest) -> int:
    """What the group would have to keep of it."""
    names = len(request.instance_id or "") + len(request.client_id) + len(request.protocol_type)
    return names + bytes_of(request.protocols)


def wants_the_same(before: Member, request: JoinRequest, protocol_type: str, protocol: str) -> bool:
    """Whether a static member that restarted can go on with its old share."""
    if request.protocol_type != protocol_type:
        return False
    said = before.metadata(protocol)
    says = next((each.metadata for each in request.protocols if each.name == protocol), None)
    if says == said:
        return True
    # What else a consumer says, such as the partitions that it owned, differs after every restart.
    return (
        says is not None
        and protocol_type == CONSUMER
        and (topics := subscribed_topics(says)) is not None
        and topics == subscribed_topics(said)
    )
