"""How a group looks from outside."""

from tailrace.broker.groups.group import Group
from tailrace.broker.groups.subscription import subscribed_topics
from tailrace.model.group import CONSUMER, GroupDescription, MemberDescription


def describe(group: Group) -> GroupDescription:
    """What members said and were assigned is shown only while it is in force."""
    in_force = group.state == "Stable"
    return GroupDescription(
        group.name,
        group.state,
        group.protocol_type,
        group.protocol if in_force else "",
        group.generation,
        group.members.leader,
        tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if in_force else b"",
                member.assignment if in_force else b"",
            )
            for member in group.members
        ),
    )


def subscribes_to(group: Group, topic: str) -> bool:
    """Whether a member reads the topic. One whose subscription can't be read may read anything."""
    if group.protocol_type != CONSUMER:
        return len(group.members) > 0
    for member in group.members:
        for protocol in member.protocols:
            topics = subscribed_topics(protocol.metadata)
            if topics is None or topic in topics:
                return True
    return False
