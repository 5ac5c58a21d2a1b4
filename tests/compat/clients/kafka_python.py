"""kafka-python."""

import re
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import kafka
from kafka import AsyncConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigFilterType, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import CommitFailedError, KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata

from tests.compat.contract import (
    ILLEGAL_GENERATION,
    MISSING,
    NOT_KAFKA,
    Bounds,
    Client,
    Codec,
    GroupState,
    Incoming,
    Outgoing,
    Start,
    TransactionState,
    Unsupported,
    WriterState,
)
from tests.compat.login import Login, login_of

SECONDS = 60.0
ERROR_NAME = re.compile(r"(?:\[Error \d+\] )?(\w+Error)\b")


class Adapter(Client):
    _member: KafkaConsumer
    _transactional: KafkaProducer

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap, **_security(login_of())}

    @classmethod
    def version(cls) -> str:
        return str(kafka.__version__)

    def code_of(self, error: Exception) -> int:
        if isinstance(error, CommitFailedError):
            return ILLEGAL_GENERATION
        return getattr(error, "errno", NOT_KAFKA) if isinstance(error, KafkaError) else NOT_KAFKA

    def produce(self, topic: str, records: list[Outgoing], codec: Codec = "none", max_bytes: int | None = None) -> None:
        limit = {} if max_bytes is None else {"max_request_size": max_bytes}
        self._produce(topic, records, compression_type=None if codec == "none" else codec, enable_idempotence=False, **limit)

    def produce_idempotent(self, topic: str, records: list[Outgoing]) -> None:
        self._produce(topic, records)

    def read(self, topic: str, partition: int, start: Start, count: int, committed_only: bool = False) -> list[Incoming]:
        consumer = self._reader(committed_only)
        self._seek(consumer, TopicPartition(topic, partition), start)
        found = _poll(consumer, count, SECONDS)
        consumer.close()
        return found

    def position(self, topic: str, partition: int, start: Start) -> int:
        consumer = self._reader(False)
        where = TopicPartition(topic, partition)
        self._seek(consumer, where, start)
        found: int = consumer.position(where)
        consumer.close()
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        consumer = self._reader(False)
        where = TopicPartition(topic, partition)
        found = consumer.offsets_for_times({where: timestamp_ms})[where]
        consumer.close()
        return MISSING if found is None else found.offset

    def newest(self, topic: str, partition: int) -> int:
        where = TopicPartition(topic, partition)
        with closing(self._admin()) as admin:
            found: int = admin.list_partition_offsets({where: OffsetSpec.MAX_TIMESTAMP})[where].offset
            return found

    def join(
        self, group: str, topic: str, session_ms: int = 10_000, hand_over: bool = False, instance_id: str | None = None
    ) -> None:
        self._member = KafkaConsumer(
            **self._common,
            group_id=group,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=min(session_ms // 4, 500),
            max_poll_interval_ms=max(session_ms, 10_000),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1_000,
            group_instance_id=instance_id,
        )
        self._member.subscribe([topic], listener=_HandOver(self._member) if hand_over else None)

    def poll(self, count: int, seconds: float) -> list[Incoming]:
        return _poll(self._member, count, seconds)

    def owned(self) -> list[int]:
        return sorted(each.partition for each in self._member.assignment())

    def commit(self) -> None:
        self._member.commit()

    def leave(self) -> None:
        self._member.close()

    def topics(self) -> list[str]:
        with closing(self._admin()) as admin:
            return sorted(admin.list_topics())

    def partitions(self, topic: str) -> int:
        with closing(self._admin()) as admin:
            (found,) = admin.describe_topics([topic])
            return len(found["partitions"])

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        with closing(self._admin()) as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})

    def delete_topic(self, topic: str) -> None:
        with closing(self._admin()) as admin:
            admin.delete_topics([topic])

    def add_partitions(self, topic: str, total: int) -> None:
        with closing(self._admin()) as admin:
            admin.create_partitions({topic: total})

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        with closing(self._admin()) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            found = admin.describe_configs([resource], config_filter=ConfigFilterType.ALL)
            ((_, by_name),) = found.items()
            return {name: entry["value"] for name, entry in by_name[topic].items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        with closing(self._admin()) as admin:
            changed = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])
            for by_name in changed.values():
                _raise_first(by_name.values())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        with closing(self._admin()) as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def bounds(self, topic: str, partition: int) -> Bounds:
        where = TopicPartition(topic, partition)
        with closing(self._admin()) as admin:
            earliest = admin.list_partition_offsets({where: OffsetSpec.EARLIEST})[where].offset
            return Bounds(earliest, admin.list_partition_offsets({where: OffsetSpec.LATEST})[where].offset)

    def brokers(self) -> int:
        with closing(self._admin()) as admin:
            return len(admin.describe_cluster()["brokers"])

    def groups(self) -> list[str]:
        with closing(self._admin()) as admin:
            return sorted(each["group_id"] for each in admin.list_groups())

    def describe_group(self, group: str) -> GroupState:
        with closing(self._admin()) as admin:
            found = admin.describe_groups([group])[group]
            return GroupState(str(found["group_state"]).lower(), len(found["members"]))

    def delete_group(self, group: str) -> None:
        with closing(self._admin()) as admin:
            deleted = admin.delete_groups([group])
            _raise_first(deleted.values() if isinstance(deleted, dict) else [error for _, error in deleted])

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        with closing(self._admin()) as admin:
            found = admin.list_group_offsets(group)[group]
            return sorted((where.partition, reached.offset) for where, reached in found.items() if where.topic == topic)

    def set_group_offsets(self, group: str, topic: str, offsets: list[tuple[int, int]]) -> None:
        wanted = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets}
        with closing(self._admin()) as admin:
            _raise_first(admin.alter_group_offsets(group, wanted).values())

    def delete_group_offsets(self, group: str, topic: str, partitions: list[int]) -> None:
        with closing(self._admin()) as admin:
            _raise_first(admin.delete_group_offsets(group, [TopicPartition(topic, each) for each in partitions]).values())

    def log_dir_sizes(self, topic: str) -> list[tuple[int, int]]:
        with closing(self._admin()) as admin:
            (broker,) = admin.describe_log_dirs()
            topics = [each for folder in broker["log_dirs"] for each in folder["topics"] if each["name"] == topic]
            return [(part["partition_index"], part["partition_size"]) for each in topics for part in each["partitions"]]

    def producers(self, topic: str, partition: int) -> list[WriterState]:
        where = TopicPartition(topic, partition)
        with closing(self._admin()) as admin:
            found = admin.describe_producers([where])[where].active_producers
            return [WriterState(each.producer_id, each.current_transaction_start_offset) for each in found]

    def transactions(self) -> list[tuple[str, str]]:
        with closing(self._admin()) as admin:
            found = [each for listed in admin.list_transactions().values() for each in listed]
            return [(each.transactional_id, each.state.value.lower()) for each in found]

    def describe_transaction(self, transactional_id: str) -> TransactionState:
        with closing(self._admin()) as admin:
            found = admin.describe_transactions([transactional_id])[transactional_id]
            return TransactionState(
                found.state.value.lower(), [(each.topic, each.partition) for each in found.topic_partitions]
            )

    def open_transactions(self, transactional_id: str) -> None:
        self._transactional = KafkaProducer(**self._common, transactional_id=transactional_id)
        self._transactional.init_transactions()

    def begin(self) -> None:
        self._transactional.begin_transaction()

    def send(self, topic: str, records: list[Outgoing]) -> None:
        _send(self._transactional, topic, records)

    def send_offsets(self) -> None:
        reached = {each: OffsetAndMetadata(self._member.position(each), "", -1) for each in self._member.assignment()}
        self._transactional.send_offsets_to_transaction(reached, self._member.group_metadata())

    def end(self, commit: bool) -> None:
        if commit:
            self._transactional.commit_transaction()
        else:
            self._transactional.abort_transaction()

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(**self._common)

    def _produce(self, topic: str, records: list[Outgoing], **settings: Any) -> None:
        with closing(KafkaProducer(**self._common, linger_ms=20, **settings)) as producer:
            _send(producer, topic, records)

    def _reader(self, committed_only: bool) -> KafkaConsumer:
        return KafkaConsumer(
            **self._common,
            enable_auto_commit=False,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
        )

    def _seek(self, consumer: KafkaConsumer, where: TopicPartition, start: Start) -> None:
        consumer.assign([where])
        if start.at == "beginning":
            consumer.seek_to_beginning(where)
        elif start.at == "end":
            consumer.seek_to_end(where)
        elif start.at == "offset":
            consumer.seek(where, start.value)
        else:
            consumer.seek(where, consumer.offsets_for_times({where: start.value})[where].offset)


class _FixedToken(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def token(self) -> str:
        return self._text


def _security(login: Login | None) -> dict[str, Any]:
    if login is None:
        return {}
    impatient = {"bootstrap_timeout_ms": 5_000}
    return {**login.python(), **impatient, **({"sasl_oauth_token_provider": _FixedToken(login.token)} if login.token else {})}


class _HandOver(AsyncConsumerRebalanceListener):
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await self._consumer.commit_async()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


def _send(producer: KafkaProducer, topic: str, records: list[Outgoing]) -> None:
    if any(value is None for each in records for _, value in each.headers):
        raise Unsupported("the value of a header can not be null")
    sent = [
        producer.send(topic, each.value, each.key, [tuple(pair) for pair in each.headers], each.partition, each.timestamp_ms)
        for each in records
    ]
    producer.flush(SECONDS)
    for future in sent:
        future.get(SECONDS)


def _poll(consumer: KafkaConsumer, count: int, seconds: float) -> list[Incoming]:
    found: list[Incoming] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and (left := deadline - time.monotonic()) > 0:
        for records in consumer.poll(min(left, 0.5) * 1_000, max_records=min(count - len(found), 10_000)).values():
            found += [
                Incoming(each.partition, each.offset, each.timestamp, each.key, each.value, list(each.headers))
                for each in records
            ]
    return found


def _raise_first(results: Iterable[Any]) -> None:
    """Results are error classes or their names, with or without a number before and a message behind, depending on the call."""
    for result in results:
        named = ERROR_NAME.match(result) if isinstance(result, str) else None
        kind = getattr(errors, named[1]) if named else result
        if isinstance(kind, type) and issubclass(kind, KafkaError) and kind.errno != 0:  # type: ignore[attr-defined]
            raise kind(result)
