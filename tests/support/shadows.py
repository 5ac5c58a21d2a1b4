"""Shadows of a broker in a test."""

from typing import Any

from tailrace.broker.broker import Broker
from tailrace.model.ids import ShadowId
from tailrace.model.shadow import LocalProducers, Shadow, ShadowPartition, ShadowReport

KAFKA = "kafka-1:9092"
OWNER = "cut-over by a test"


def drafted(**fields: Any) -> Shadow:
    """Return a shadow that is not created yet: of `app.>` to a Kafka, unless the fields say else."""
    given = {"name": "prod", "direction": "to", "bootstrap": KAFKA, "topics": ("app.>",), "copied_by": "command"} | fields
    return Shadow(id=ShadowId(0), created_ms=0, **given)


async def created(broker: Broker, **fields: Any) -> Shadow:
    return await broker.shadows.create(drafted(**fields))


async def fenced(broker: Broker, producers: LocalProducers = "refuse", **fields: Any) -> Shadow:
    """Create a shadow and begin to cut it over."""
    return await broker.cut_overs.fence(await created(broker, **fields), OWNER, producers)


async def cut_over(broker: Broker, producers: LocalProducers = "refuse", **fields: Any) -> Shadow:
    """Create a shadow and cut it over."""
    shadow = await fenced(broker, producers, **fields)
    return await broker.cut_overs.finish(shadow, producers, shadow.fences)


async def unfenced(broker: Broker, shadow: Shadow) -> Shadow:
    return await broker.cut_overs.give_up(shadow, shadow.fences, None)


def report(broker: Broker, shadow: Shadow, **positions: int) -> None:
    """Report as a process that copies these topics of one partition each, up to these offsets; `_` stands for a dot."""
    partitions = []
    for name, position in positions.items():
        live = broker.topics.get(name.replace("_", "."))
        end = broker.store.bounds(live.partition(0)).end
        partitions.append(ShadowPartition(live.topic.name, 0, position, end, position, live.topic.kafka_id))
    broker.shadows.report(
        shadow, broker.shadows.attach(shadow, "a test"), "a test", ShadowReport(state="live", partitions=tuple(partitions))
    )
