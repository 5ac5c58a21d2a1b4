"""What is checked of a Kafka before topics are copied to it or from it: by CREATE SHADOW, and by its DRY RUN alone."""

from collections.abc import AsyncIterator, Mapping, Sequence

from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.shadow import CopiedTopics, ShadowToCheck
from tailrace.model.text import counted
from tailrace.shadow.admin import EARLIEST, LATEST, ClusterAdmin
from tailrace.shadow.cluster import KafkaCluster, TopicPlace
from tailrace.shadow.failures import TOPIC_ALREADY_EXISTS, ShadowError
from tailrace.shadow.kafka_access import kafka_access, server_access

_MOST_NAMED = 5
_PROBE = "tailrace-shadow-check"
"""A topic that is not created: the target only says whether it could be."""


async def check_shadow(asked: ShadowToCheck) -> list[ConnectionCheck]:
    """Return everything that can be said without changing anything, in order."""
    clusters: list[KafkaCluster] = []
    checks: list[ConnectionCheck] = []
    try:
        clusters = [KafkaCluster(server_access(asked.kafka)), KafkaCluster(kafka_access(asked.shadow))]
        server, kafka = clusters
        checks += [check async for check in _check(asked, server, kafka)]
    except ShadowError as error:
        checks.append(ConnectionCheck("connection", "failed", error.message, error.advice))
    finally:
        for cluster in clusters:
            await cluster.close()
    return checks


async def _check(asked: ShadowToCheck, server: KafkaCluster, kafka: KafkaCluster) -> AsyncIterator[ConnectionCheck]:
    shadow = asked.shadow
    there = await kafka.refresh()
    brokers = counted(len(kafka.nodes), "broker")
    yield ConnectionCheck("connection", "ok", f"connected to {kafka.what}, which has {brokers}")
    if kafka.cluster_id == asked.cluster_id:
        yield ConnectionCheck(
            "cluster",
            "failed",
            f"{shadow.bootstrap} is this server itself, and its topics would be copied to themselves",
            "Give the addresses of another cluster",
        )
        return
    included = CopiedTopics(shadow, DEFAULT_LIMITS)
    here = await server.refresh()
    origin = here if shadow.direction == "to" else there
    copied = [place for place in origin.values() if included.includes(place.name) and not place.is_internal]
    if shadow.direction == "from":
        # The server itself says which of its own topics are copied.
        yield _check_topics(copied, shadow.topics)
    target = kafka if shadow.direction == "to" else server
    known = there if shadow.direction == "to" else here
    async for check in _check_target(target, copied, known):
        yield check


def _check_topics(copied: Sequence[TopicPlace], patterns: Sequence[str]) -> ConnectionCheck:
    if not copied:
        return ConnectionCheck(
            "topics",
            "warning",
            f"no topic matches {', '.join(patterns)} at the moment",
            "Topics that are created later are copied. If that is not meant, correct the patterns",
        )
    partitions = sum(place.partitions for place in copied)
    return ConnectionCheck(
        "topics", "ok", f"{counted(len(copied), 'topic')} with {counted(partitions, 'partition')}: {_named(copied)}"
    )


async def _check_target(
    target: KafkaCluster, copied: Sequence[TopicPlace], known: Mapping[str, TopicPlace]
) -> AsyncIterator[ConnectionCheck]:
    admin = ClusterAdmin(target)
    refusal = await admin.create_topic(_PROBE, 1, {}, validate_only=True)
    if refusal is not None and refusal.code != TOPIC_ALREADY_EXISTS:
        yield ConnectionCheck("create topics", "failed", refusal.message, refusal.advice)
    else:
        yield ConnectionCheck("create topics", "ok", "topics can be created in the target")
    existing = [known[place.name] for place in copied if place.name in known]
    starts, ends = await admin.offsets(existing, EARLIEST), await admin.offsets(existing, LATEST)
    used = [place for place in existing if any(starts[each] < ends[each] for each in ends if each[0] == place.name)]
    if used:
        yield ConnectionCheck(
            "target topics",
            "warning",
            f"in the target {counted(len(used), 'topic')} of these names {'has' if len(used) == 1 else 'have'} records already:"
            f" {_named(used)}",
            "They are compared first, and copied on if they are the beginning of the origin's; otherwise delete them there",
        )


def _named(places: Sequence[TopicPlace]) -> str:
    names = ", ".join(sorted(place.name for place in places)[:_MOST_NAMED])
    return names if len(places) <= _MOST_NAMED else f"{names} and {len(places) - _MOST_NAMED} more"
