"""confluent-kafka, which is librdkafka."""

import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.contract import (
    ILLEGAL_GENERATION,
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
    Unsupported,
)
from tests.compat.login import Login, login_of

SECONDS = 60.0


class Adapter(Client):
    _member: Consumer
    _transactional: Producer

    def __init__(self, bootstrap: str, client_id: str = "rdkafka", login: Login | None = None) -> None:
        super().__init__(bootstrap)
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            **_security(login or login_of()),
        }
        self._admin = AdminClient(self._common)

    @classmethod
    def version(cls) -> str:
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def code_of(self, error: Exception) -> int:
        code = error.args[0].code() if isinstance(error, KafkaException) else NOT_KAFKA
        own = {KafkaError._ASSIGNMENT_LOST: ILLEGAL_GENERATION, KafkaError._FENCED: PRODUCER_FENCED}
        return own.get(code, int(code))

    def produce(self, topic: str, records: list[Outgoing], codec: Codec = "none", max_bytes: int | None = None) -> None:
        settings: dict[str, Any] = {"compression.type": codec, "linger.ms": 20}
        if max_bytes is not None:
            settings["message.max.bytes"] = max_bytes
        _send(self._producer(settings), topic, records)

    def produce_idempotent(self, topic: str, records: list[Outgoing]) -> None:
        _send(self._producer({"enable.idempotence": True}), topic, records)

    def read(self, topic: str, partition: int, start: Start, count: int, committed_only: bool = False) -> list[Incoming]:
        consumer = self._reader(committed_only)
        consumer.assign([TopicPartition(topic, partition, self._offset(consumer, topic, partition, start))])
        found = _poll(consumer, count, SECONDS)
        consumer.close()
        return found

    def position(self, topic: str, partition: int, start: Start) -> int:
        consumer = self._reader(False)
        offset = self._offset(consumer, topic, partition, start)
        if offset < 0:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)
            offset = low if start.at == "beginning" else high
        consumer.assign([TopicPartition(topic, partition, offset)])
        consumer.poll(0.1)
        consumer.seek(TopicPartition(topic, partition, offset))
        consumer.close()
        return offset

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        consumer = self._reader(False)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], SECONDS)
        consumer.close()
        return found.offset if found.offset >= 0 else MISSING

    def newest(self, topic: str, partition: int) -> int:
        (found,) = _all(self._admin.list_offsets({TopicPartition(topic, partition): OffsetSpec.max_timestamp()}))
        return int(found.offset)

    def join(
        self, group: str, topic: str, session_ms: int = 10_000, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        session = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": min(session_ms // 4, 500)}
        self._subscribe(group, topic, session, hand_over, instance_id)

    def join_by_consumer_protocol(
        self, group: str, topic: str, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        self._subscribe(group, topic, {"group.protocol": "consumer"}, hand_over, instance_id)

    def _subscribe(self, group: str, topic: str, settings: dict[str, Any], hand_over: bool, instance_id: str | None) -> None:
        self._member = Consumer(
            {
                **self._common,
                **settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
                **({} if instance_id is None else {"group.instance.id": instance_id}),
            }
        )
        if hand_over:
            self._member.subscribe([topic], on_revoke=_commit_reached)
        else:
            self._member.subscribe([topic])

    def poll(self, count: int, seconds: float) -> list[Incoming]:
        return _poll(self._member, count, seconds)

    def owned(self) -> list[int]:
        return sorted(each.partition for each in self._member.assignment())

    def commit(self) -> None:
        try:
            self._member.commit(asynchronous=False)
        except KafkaException as error:
            # It has read nothing since it committed before partitions were taken from it.
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def leave(self) -> None:
        self._member.close()

    def topics(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=SECONDS).topics)

    def partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _all(self._admin.create_topics([NewTopic(topic, partitions, 1, config=configs)]))

    def delete_topic(self, topic: str) -> None:
        _all(self._admin.delete_topics([topic]))

    def add_partitions(self, topic: str, total: int) -> None:
        _all(self._admin.create_partitions([NewPartitions(topic, total)]))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        (entries,) = _all(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        _all(self._admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        _all(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def bounds(self, topic: str, partition: int) -> Bounds:
        where = TopicPartition(topic, partition)
        (earliest,) = _all(self._admin.list_offsets({where: OffsetSpec.earliest()}))
        (latest,) = _all(self._admin.list_offsets({where: OffsetSpec.latest()}))
        return Bounds(earliest.offset, latest.offset)

    def brokers(self) -> int:
        return len(self._admin.describe_cluster().result(SECONDS).nodes)

    def groups(self) -> list[str]:
        return sorted(each.group_id for each in self._admin.list_consumer_groups().result(SECONDS).valid)

    def describe_group(self, group: str) -> GroupState:
        (found,) = _all(self._admin.describe_consumer_groups([group]))
        return GroupState(found.state.name.lower(), len(found.members))

    def delete_group(self, group: str) -> None:
        _all(self._admin.delete_consumer_groups([group]))

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        (found,) = _all(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return sorted((each.partition, each.offset) for each in found.topic_partitions if each.topic == topic)

    def set_group_offsets(self, group: str, topic: str, offsets: list[tuple[int, int]]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets]
        (changed,) = _all(self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))
        _raise_first(changed.topic_partitions)

    def delete_group_offsets(self, group: str, topic: str, partitions: list[int]) -> None:
        raise Unsupported("its admin client has no DeleteConsumerGroupOffsets")

    def open_transactions(self, transactional_id: str) -> None:
        self._transactional = self._producer({"transactional.id": transactional_id})
        self._transactional.init_transactions(SECONDS)

    def begin(self) -> None:
        self._transactional.begin_transaction()

    def send(self, topic: str, records: list[Outgoing]) -> None:
        _send(self._transactional, topic, records)

    def send_offsets(self) -> None:
        reached = _reached(self._member, self._member.assignment())
        self._transactional.send_offsets_to_transaction(reached, self._member.consumer_group_metadata(), SECONDS)

    def end(self, commit: bool) -> None:
        if commit:
            self._transactional.commit_transaction(SECONDS)
        else:
            self._transactional.abort_transaction(SECONDS)

    def _producer(self, settings: dict[str, Any]) -> Producer:
        return Producer({**self._common, "partitioner": "murmur2_random", **settings})

    def _reader(self, committed_only: bool) -> Consumer:
        return Consumer(
            {
                **self._common,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            }
        )

    def _offset(self, consumer: Consumer, topic: str, partition: int, start: Start) -> int:
        if start.at == "time":
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, start.value)], SECONDS)
            return found.offset
        return {"beginning": confluent_kafka.OFFSET_BEGINNING, "end": confluent_kafka.OFFSET_END}.get(start.at, start.value)


def _security(login: Login | None) -> dict[str, Any]:
    """Return settings by which a client that can't log in says so, where it would try again for minutes."""
    if login is None:
        return {}
    refused = _raise_refused
    token = {"oauth_cb": lambda _: (login.token, time.time() + 3600)} if login.token else {}
    return {**login.rdkafka(), **token, "error_cb": refused, "log_level": 0, "message.timeout.ms": 20_000}


def _raise_refused(error: KafkaError) -> None:
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        raise KafkaException(error)


def _reached(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    return [each for each in consumer.position(partitions) if each.offset >= 0]


def _commit_reached(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if reached := _reached(consumer, partitions):
        consumer.commit(offsets=reached, asynchronous=False)


def _send(producer: Producer, topic: str, records: Iterable[Outgoing]) -> None:
    errors: list[Any] = []
    for record in records:
        extra: dict[str, Any] = {}
        if record.partition is not None:
            extra["partition"] = record.partition
        if record.timestamp_ms is not None:
            extra["timestamp"] = record.timestamp_ms
        if record.headers:
            extra["headers"] = record.headers
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    on_delivery=lambda error, _: errors.append(error) if error else None,
                    **extra,
                )
                break
            except BufferError:
                producer.poll(0.1)
    deadline = time.monotonic() + SECONDS
    # What a callback raises comes out when a flush ends.
    while (left := producer.flush(0.5)) and not errors and time.monotonic() < deadline:
        pass
    if errors:
        raise KafkaException(errors[0])
    if left:
        raise TimeoutError(f"{left} records were not acknowledged in {SECONDS} s")


def _poll(consumer: Consumer, count: int, seconds: float) -> list[Incoming]:
    found: list[Incoming] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and (left := deadline - time.monotonic()) > 0:
        found += [_incoming(message) for message in consumer.consume(min(count - len(found), 10_000), min(left, 0.1))]
    return found


def _incoming(message: Message) -> Incoming:
    if (error := message.error()) is not None:
        raise KafkaException(error)
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Incoming(
        partition, offset, message.timestamp()[1], message.key(), message.value(), [(k, v) for k, v in message.headers() or []]
    )


def _all(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(SECONDS) for future in futures.values()]


def _raise_first(partitions: Iterable[TopicPartition]) -> None:
    for each in partitions:
        if each.error is not None:
            raise KafkaException(each.error)
