"""Members that use the classic protocol in a group of the consumer protocol, and how a group changes its protocol.

A JoinGroup is read as the heartbeat of a member that joins: its subscription is in its metadata, and what it does not say to
own it has given up. The generation of a classic member is its epoch. It has no leader to wait for: SyncGroup answers with what
the server assigned, and a heartbeat says `REBALANCE_IN_PROGRESS` when joining again would bring the member further.

A classic group is **upgraded** when a member of the consumer protocol joins it, and **downgraded** when the last one has left.
Both put a record of the one kind in the place of the other, so that a group is of one protocol whenever the server stops.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from tailrace.broker.groups.assignment import Assignment, collected, to_stored, together
from tailrace.broker.groups.assignors import DEFAULT_ASSIGNOR
from tailrace.broker.groups.consumer_group import ConsumerGroup
from tailrace.broker.groups.consumer_member import ConsumerMember
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.members import Member, bounded_rebalance_timeout_ms
from tailrace.broker.groups.subscribed_topics import SubscribedTopics
from tailrace.model.consumer_group import (
    JOINING_EPOCH,
    ClassicClient,
    ConsumerGroupRecord,
    ConsumerHeartbeat,
    ConsumerMemberRecord,
    MemberState,
)
from tailrace.model.errors import (
    IllegalGenerationError,
    InconsistentProtocolError,
    MalformedMessageError,
    RebalanceInProgressError,
    UnknownGroupError,
    UnknownMemberError,
)
from tailrace.model.group import (
    CONSUMER,
    NO_MEMBER,
    GroupRecord,
    Joined,
    JoinRequest,
    MemberIdentity,
    MemberProtocol,
    MemberRecord,
    Synced,
    SyncRequest,
)
from tailrace.model.limits import Limits
from tailrace.wire.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_member_subscription,
    encode_assignment,
    has_user_data,
)


def joining(group: ConsumerGroup, request: JoinRequest, topics: SubscribedTopics, limits: Limits) -> ConsumerHeartbeat:
    """Return the heartbeat that a JoinGroup stands for. Raises unless its protocols fit the classic members of the group."""
    if request.protocol_type != CONSUMER:
        raise InconsistentProtocolError(
            f"the members of group {group.name!r} are of the type {CONSUMER!r}, not {request.protocol_type!r}"
        )
    common = {protocol.name for protocol in request.protocols}
    static = group.find_instance(request.instance_id)
    for member in group.members:
        if member.classic is not None and member is not static and member.member_id != request.member_id:
            common &= {protocol.name for protocol in member.classic.protocols}
    if not common:
        offered = ", ".join(protocol.name for protocol in request.protocols)
        raise InconsistentProtocolError(
            f"the classic members of group {group.name!r} do not all support one of: {offered}. Give all of them a common"
            " partition.assignment.strategy"
        )
    try:
        said = _subscription(request.protocols)
    except MalformedMessageError as error:
        raise InconsistentProtocolError(f"the metadata of a member of group {group.name!r} can't be read: {error}") from error
    if request.member_id != NO_MEMBER and (request.instance_id is not None or said.owned):
        # Who was removed must give up what it still reads before it joins again. Others may bring an id that they were given.
        group.find(request.member_id, request.instance_id)
    return ConsumerHeartbeat(
        request.group,
        request.member_id,
        JOINING_EPOCH,
        request.client_id,
        request.client_host,
        request.instance_id,
        said.rack_id,
        bounded_rebalance_timeout_ms(request, limits),
        tuple(dict.fromkeys(said.topics)),
        topic_pattern="",
        owned=_known(said.owned, topics),
        classic=ClassicClient(request.session_timeout_ms, request.protocols),
    )


def joined(member: ConsumerMember) -> Joined:
    return Joined(member.progress.epoch, CONSUMER, _protocol(member), NO_MEMBER, member.member_id, ())


def sync(group: ConsumerGroup, request: SyncRequest, topics: SubscribedTopics) -> Synced:
    """Return what the server has assigned to a member that has joined."""
    member = _at_its_generation(group, request.member)
    # A member that has to give partitions up learns which ones from its assignment, and joins again when it has.
    if member.progress.epoch != group.epoch and member.progress.state != "unrevoked":
        group.ask(member)
        raise _rebalancing(group)
    for given, chosen in ((request.protocol_type, CONSUMER), (request.protocol, _protocol(member))):
        if given is not None and given != chosen:
            raise InconsistentProtocolError(
                f"member {member.member_id!r} of group {group.name!r} joined with {chosen!r}, not {given!r}"
            )
    member.act_until_ms = None
    group.extend_session(member)
    return Synced(CONSUMER, _protocol(member), encode_assignment(_named(member, member.progress.assigned, topics)))


def heartbeat(group: ConsumerGroup, identity: MemberIdentity) -> None:
    """Raise `RebalanceInProgressError` if the member has to join again."""
    member = _at_its_generation(group, identity)
    group.extend_session(member)
    if group.can_advance(member):
        group.ask(member)
        raise _rebalancing(group)


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Remove a member, or any static member that is given by its instance id alone, as administrators do it."""
    static = group.find_instance(instance_id)
    if static is not None and member_id == NO_MEMBER:
        group.remove(static)
    else:
        group.remove(_classic(group, member_id, instance_id))


def upgraded(group: Group, topics: SubscribedTopics) -> ConsumerGroupRecord:
    """Return the classic group as one of the consumer protocol. Raises if its members can't go on in one.

    Each member keeps what it was assigned in the last generation. One that was new has nothing yet, and joins by itself.
    """
    if len(group.members) and group.protocol_type != CONSUMER:
        raise _not_upgradable(group, f"its members are of the type {group.protocol_type!r}, not {CONSUMER!r}")
    members = [member for member in group.members if not member.is_new]
    try:
        said = [_subscription(member.protocols) for member in members]
        if any(has_user_data(member.assignment) for member in members):
            raise _not_upgradable(group, "its assignor adds data of its own to assignments, which the server's would lose")
        assigned = [_known(decode_assignment(member.assignment), topics) for member in members]
    except MalformedMessageError as error:
        raise _not_upgradable(group, f"the metadata of a member can't be read: {error}") from error
    owners = {partition for each in assigned for partition in _each(each)}
    if len(owners) < sum(1 for each in assigned for _ in _each(each)):
        raise _not_upgradable(group, "its assignor gives a partition to more than one member")
    records = []
    for member, subscription, share in zip(members, said, assigned, strict=True):
        # What a cooperative member owned when it joined and was not assigned again it may still read, until it joins once more.
        revoking = collected(each for each in _each(_known(subscription.owned, topics)) if each not in owners)
        owners.update(_each(revoking))
        records.append(_upgraded(member, group.generation, subscription, share, revoking))
    return ConsumerGroupRecord(group.generation, DEFAULT_ASSIGNOR, b"", tuple(records), group.changed_ms)


def downgraded(group: ConsumerGroup, topics: SubscribedTopics, now_ms: int) -> GroupRecord:
    """Return a group whose members are all classic as a classic group. It has no leader, so its members join again."""
    members = []
    for member in group.members:
        classic = member.classic
        if classic is not None:
            progress = member.progress
            members.append(
                MemberRecord(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    classic.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    classic.protocols,
                    encode_assignment(_named(member, together(progress.assigned, progress.revoking), topics)),
                )
            )
    return GroupRecord(group.epoch, CONSUMER, "", NO_MEMBER, tuple(members), now_ms)


def _upgraded(
    member: Member, generation: int, said: MemberSubscription, assigned: Assignment, revoking: Assignment
) -> ConsumerMemberRecord:
    state: MemberState = "unrevoked" if revoking else "stable"
    share = to_stored(assigned)
    return ConsumerMemberRecord(
        member.member_id,
        member.instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        tuple(dict.fromkeys(said.topics)),
        "",
        None,
        generation,
        generation,
        state,
        share,
        to_stored(revoking),
        share,
        ClassicClient(member.session_timeout_ms, member.protocols),
    )


def _at_its_generation(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    member = _classic(group, identity.member_id, identity.instance_id)
    if identity.generation != member.progress.epoch:
        raise IllegalGenerationError(
            f"member {member.member_id!r} of group {group.name!r} is in generation {member.progress.epoch}, not"
            f" {identity.generation}; join again"
        )
    return member


def _classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberError(f"member {member_id!r} of group {group.name!r} uses the consumer protocol; join again")
    return member


def _protocol(member: ConsumerMember) -> str:
    """Return the assignor that a classic member is told. The server assigns, so it need not be that of the others."""
    return "" if member.classic is None else member.classic.protocols[0].name


def _subscription(protocols: Sequence[MemberProtocol]) -> MemberSubscription:
    # A client says the same in the metadata of all its assignors.
    return decode_member_subscription(protocols[0].metadata)


def _known(partitions: Mapping[str, Iterable[int]], topics: SubscribedTopics) -> Assignment:
    """Return those of the partitions that exist."""
    found: list[tuple[UUID, int]] = []
    for name, numbers in partitions.items():
        live = topics.find(name)
        if live is not None:
            found += [(live.topic.uuid, number) for number in numbers if 0 <= number < len(live.partitions)]
    return collected(found)


def _named(member: ConsumerMember, assigned: Assignment, topics: SubscribedTopics) -> dict[str, list[int]]:
    """Return the partitions by the names under which the member subscribes to them: clients take no other, such as an alias."""
    names = {live.topic.uuid: name for name in reversed(member.topic_names) if (live := topics.find(name)) is not None}
    found = {}
    for topic, numbers in assigned.items():
        live = topics.find_by_uuid(topic)
        if live is not None:
            found[names.get(topic, live.topic.name)] = sorted(numbers)
    return found


def _each(assignment: Assignment) -> Iterable[tuple[UUID, int]]:
    return ((topic, number) for topic, numbers in assignment.items() for number in numbers)


def _rebalancing(group: ConsumerGroup) -> RebalanceInProgressError:
    return RebalanceInProgressError(f"group {group.name!r} is rebalancing; join again")


def _not_upgradable(group: Group, reason: str) -> UnknownGroupError:
    return UnknownGroupError(
        f"group {group.name!r} can't take members of the consumer protocol beside its classic ones: {reason}; stop those first"
    )
