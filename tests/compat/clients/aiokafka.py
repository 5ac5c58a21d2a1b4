"""aiokafka. Its calls are coroutines; they run on a loop of their own, so that members go on heartbeating between calls."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, CommitFailedError, KafkaError, ProducerFenced, for_code

from tests.compat.contract import (
    MISSING,
    NOT_KAFKA,
    PRODUCER_FENCED,
    Bounds,
    Client,
    Codec,
    GroupState,
    Incoming,
    Outgoing,
    Start,
)
from tests.compat.login import Login, login_of

SECONDS = 60.0

T = TypeVar("T")


class Adapter(Client):
    _member: AIOKafkaConsumer
    _hands_over = False
    _transactional: AIOKafkaProducer

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap, **_security(login_of())}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    @classmethod
    def version(cls) -> str:
        return str(aiokafka.__version__)

    def code_of(self, error: Exception) -> int:
        while not isinstance(error, BrokerResponseError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        if isinstance(error, ProducerFenced):
            return PRODUCER_FENCED
        return getattr(error, "errno", NOT_KAFKA) if isinstance(error, KafkaError) else NOT_KAFKA

    def produce(self, topic: str, records: list[Outgoing], codec: Codec = "none", max_bytes: int | None = None) -> None:
        settings: dict[str, Any] = {} if max_bytes is None else {"max_request_size": max_bytes}
        self._run(self._produce(topic, records, compression_type=None if codec == "none" else codec, **settings))

    def produce_idempotent(self, topic: str, records: list[Outgoing]) -> None:
        self._run(self._produce(topic, records, enable_idempotence=True))

    def read(self, topic: str, partition: int, start: Start, count: int, committed_only: bool = False) -> list[Incoming]:
        async def read() -> list[Incoming]:
            async with self._reader(committed_only) as consumer:
                await _seek(consumer, TopicPartition(topic, partition), start)
                return await _poll(consumer, count, SECONDS)

        return self._run(read())

    def position(self, topic: str, partition: int, start: Start) -> int:
        async def position() -> int:
            async with self._reader(False) as consumer:
                where = TopicPartition(topic, partition)
                await _seek(consumer, where, start)
                return int(await consumer.position(where))

        return self._run(position())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        async def look_up() -> int:
            async with self._reader(False) as consumer:
                where = TopicPartition(topic, partition)
                found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
                return MISSING if found is None else int(found.offset)

        return self._run(look_up())

    def join(
        self, group: str, topic: str, session_ms: int = 10_000, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        self._hands_over = hand_over

        async def join() -> None:
            self._member = AIOKafkaConsumer(
                **self._common,
                group_id=group,
                session_timeout_ms=session_ms,
                heartbeat_interval_ms=min(session_ms // 4, 500),
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                metadata_max_age_ms=1_000,
                group_instance_id=instance_id,
            )
            self._member.subscribe([topic], listener=_HandOver(self._member) if hand_over else None)
            await self._member.start()

        self._run(join())

    def poll(self, count: int, seconds: float) -> list[Incoming]:
        return self._run(_poll(self._member, count, seconds))

    def owned(self) -> list[int]:
        return sorted(each.partition for each in self._member.assignment())

    def commit(self) -> None:
        self._run(self._member.commit())

    def leave(self) -> None:
        async def leave() -> None:
            if self._hands_over:
                # Its listener is not told when it stops. In a rebalance it has been told already, and the commit is refused.
                with suppress(CommitFailedError):
                    await self._member.commit()
            await self._member.stop()

        self._run(leave())

    def topics(self) -> list[str]:
        return sorted(self._ask_admin("list_topics"))

    def partitions(self, topic: str) -> int:
        (found,) = self._ask_admin("describe_topics", [topic])
        return len(found["partitions"])

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _raise_codes(self._ask_admin("create_topics", [NewTopic(topic, partitions, 1, topic_configs=configs)]).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _raise_codes(self._ask_admin("delete_topics", [topic]).topic_error_codes)

    def add_partitions(self, topic: str, total: int) -> None:
        _raise_codes(self._ask_admin("create_partitions", {topic: NewPartitions(total)}).topic_errors)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        (response,) = self._ask_admin("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)])
        (found,) = response.resources
        _raise_codes([(topic, found[0])])
        return {entry[0]: entry[1] for entry in found[4]}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        changes = [ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})]
        for response in self._ask_admin("alter_configs", changes):
            _raise_codes((topic, found[0]) for found in response.resources)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._ask_admin("delete_records", {TopicPartition(topic, partition): RecordsToDelete(before)})

    def bounds(self, topic: str, partition: int) -> Bounds:
        async def bounds() -> Bounds:
            async with self._reader(False) as consumer:
                where = TopicPartition(topic, partition)
                earliest, latest = await consumer.beginning_offsets([where]), await consumer.end_offsets([where])
                return Bounds(earliest[where], latest[where])

        return self._run(bounds())

    def brokers(self) -> int:
        return len(self._ask_admin("describe_cluster")["brokers"])

    def groups(self) -> list[str]:
        return sorted(each[0] for each in self._ask_admin("list_consumer_groups"))

    def describe_group(self, group: str) -> GroupState:
        (response,) = self._ask_admin("describe_consumer_groups", [group])
        (found,) = response.groups
        _raise_codes([(group, found[0])])
        return GroupState(found[2].lower(), len(found[5]))

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        found = self._ask_admin("list_consumer_group_offsets", group)
        return sorted((where.partition, reached.offset) for where, reached in found.items() if where.topic == topic)

    def open_transactions(self, transactional_id: str) -> None:
        async def open_() -> None:
            self._transactional = AIOKafkaProducer(**self._common, transactional_id=transactional_id)
            await self._transactional.start()

        self._run(open_())

    def begin(self) -> None:
        self._run(self._transactional.begin_transaction())

    def send(self, topic: str, records: list[Outgoing]) -> None:
        self._run(_send(self._transactional, topic, records))

    def send_offsets(self) -> None:
        async def send_offsets() -> None:
            reached = {each: await self._member.position(each) for each in self._member.assignment()}
            await self._transactional.send_offsets_to_transaction(reached, self._member._group_id)

        self._run(send_offsets())

    def end(self, commit: bool) -> None:
        self._run(self._transactional.commit_transaction() if commit else self._transactional.abort_transaction())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _ask_admin(self, verb: str, *args: Any) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(**self._common)
            await admin.start()
            try:
                return await getattr(admin, verb)(*args)
            finally:
                await admin.close()

        return self._run(ask())

    async def _produce(self, topic: str, records: list[Outgoing], **settings: Any) -> None:
        async with AIOKafkaProducer(**self._common, linger_ms=20, **settings) as producer:
            await _send(producer, topic, records)

    @asynccontextmanager
    async def _reader(self, committed_only: bool) -> AsyncIterator[AIOKafkaConsumer]:
        async with AIOKafkaConsumer(
            **self._common,
            enable_auto_commit=False,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
        ) as consumer:
            yield consumer


class _FixedToken(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def _security(login: Login | None) -> dict[str, Any]:
    if login is None:
        return {}
    return {**login.python(), **({"sasl_oauth_token_provider": _FixedToken(login.token)} if login.token else {})}


class _HandOver(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await self._consumer.commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


async def _seek(consumer: AIOKafkaConsumer, where: TopicPartition, start: Start) -> None:
    consumer.assign([where])
    if start.at == "beginning":
        await consumer.seek_to_beginning(where)
    elif start.at == "end":
        await consumer.seek_to_end(where)
    elif start.at == "offset":
        consumer.seek(where, start.value)
    else:
        consumer.seek(where, (await consumer.offsets_for_times({where: start.value}))[where].offset)


async def _send(producer: AIOKafkaProducer, topic: str, records: Iterable[Outgoing]) -> None:
    sent = [
        await producer.send(topic, each.value, each.key, each.partition, each.timestamp_ms, each.headers or None)
        for each in records
    ]
    await asyncio.wait_for(asyncio.gather(*sent), SECONDS)


async def _poll(consumer: AIOKafkaConsumer, count: int, seconds: float) -> list[Incoming]:
    found: list[Incoming] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and (left := deadline - time.monotonic()) > 0:
        batch = await consumer.getmany(timeout_ms=int(min(left, 0.5) * 1_000), max_records=min(count - len(found), 10_000))
        for records in batch.values():
            found += [
                Incoming(each.partition, each.offset, each.timestamp, each.key, each.value, list(each.headers))
                for each in records
            ]
    return found


def _raise_codes(results: Iterable[tuple[Any, ...]]) -> None:
    """Results are tuples of a name, a code and more."""
    for _, code, *rest in results:
        if code != 0:
            raise for_code(code)(*rest)
