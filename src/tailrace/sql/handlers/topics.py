"""CREATE, ALTER, CLEAR and DROP TOPIC, as calls of the broker."""

from tailrace.broker.broker import Broker
from tailrace.model.errors import ReservedTopicError, TopicExistsError
from tailrace.model.text import counted
from tailrace.sql.results import Result
from tailrace.sql.statements import (
    AddPartitionsStatement,
    ClearTopicStatement,
    CreateTopicStatement,
    DropTopicStatement,
    SetTopicStatement,
)


class TopicHandler:
    """Creates, alters, clears and drops topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, asked: CreateTopicStatement) -> Result:
        topics = self._broker.topics
        if asked.if_not_exists and _is_topic(self._broker, asked.name):
            return Result(status="CREATE TOPIC, which exists")
        try:
            await topics.create(
                asked.name,
                1 if asked.partitions is None else asked.partitions,
                alias=asked.alias,
                options=asked.options,
                must_be_new=True,
            )
        except TopicExistsError:
            # Another request may have created it in the meantime.
            if asked.if_not_exists and _is_topic(self._broker, asked.name):
                return Result(status="CREATE TOPIC, which exists")
            raise
        return Result(status="CREATE TOPIC")

    async def set(self, asked: SetTopicStatement) -> Result:
        await self._broker.topics.alter(asked.name, asked.options, alias=asked.alias)
        return Result(status="ALTER TOPIC")

    async def add_partitions(self, asked: AddPartitionsStatement) -> Result:
        topic = await self._broker.topics.add_partitions(asked.name, asked.partitions)
        return Result(status=f"ALTER TOPIC, {counted(topic.partitions, 'partition')}")

    async def clear(self, asked: ClearTopicStatement) -> Result:
        gone = await self._broker.retention.clear(asked.name)
        return Result(status=f"CLEAR TOPIC {gone}", affected=gone)

    async def drop(self, asked: DropTopicStatement) -> Result:
        live = self._broker.topics.find(asked.name)
        if self._broker.tables.find(asked.name) is not None:
            raise ReservedTopicError(
                f"{asked.name!r} is a table, not a topic; use DROP TABLE, which also drops the topic of its changes"
            )
        if live is None and asked.if_exists:
            return Result(status="DROP TOPIC, which does not exist")
        if live is not None and asked.cascade:
            dependent = self._broker.views.removal_of(live.topic.id, self._broker.routes.removal_of(live.topic.id))
            await self._broker.grants.turns.run(self._broker.topics.delete(asked.name, dependent))
        else:
            await self._broker.topics.delete(asked.name)
        return Result(status="DROP TOPIC")


def _is_topic(broker: Broker, name: str) -> bool:
    """Return whether the name is that of a user's topic. The name of a table is in use too, but is not a topic."""
    live = broker.topics.find(name)
    return live is not None and not live.is_reserved
