"""Writes batches to a cluster in transactions, and with each the positions of its origin: both are there, or neither.

A writer has one transactional id, which is fenced when it begins: what another one with this id has begun is aborted, and it
can write no more. Nothing is sent twice. After an error the writer is thrown away, with whatever it had under way, and the next
one learns from the committed positions how far it came.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.model.group import NO_LEADER_EPOCH
from tailrace.model.limits import MIB
from tailrace.shadow.admin import CommittedPosition, Partition
from tailrace.shadow.cluster import GROUP, TRANSACTION, KafkaCluster, TopicPlace
from tailrace.shadow.connection import BrokerConnection, Versions
from tailrace.shadow.failures import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_MOVES,
    FENCED,
    NOT_LEADER_OR_FOLLOWER,
    OF_ONE_TOPIC,
    FencedError,
    KafkaRefusalError,
    TopicRefusedError,
    UnreachableError,
)
from tailrace.shadow.packing import PackedBatch
from tailrace.wire.batch import CHECKED_FROM, TRANSACTIONAL_MASK
from tailrace.wire.message import KafkaMessage
from tailrace.wire.messages.produce import PRODUCE_API, ProduceResponse
from tailrace.wire.messages.transactions import (
    ADD_OFFSETS_TO_TXN_API,
    ADD_PARTITIONS_TO_TXN_API,
    END_TXN_API,
    INIT_PRODUCER_ID_API,
    TXN_OFFSET_COMMIT_API,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tailrace.wire.varints import write_unsigned_varint

R = TypeVar("R", bound=KafkaMessage)

# The versions of clients from before KIP-890: partitions are added to a transaction before they are written to.
_INIT = Versions(INIT_PRODUCER_ID_API, 2, 5)
_ADD_PARTITIONS = Versions(ADD_PARTITIONS_TO_TXN_API, 1, 3)
_ADD_OFFSETS = Versions(ADD_OFFSETS_TO_TXN_API, 1, 3)
_COMMIT_OFFSETS = Versions(TXN_OFFSET_COMMIT_API, 2, 3)
_END = Versions(END_TXN_API, 1, 3)
_PRODUCE = Versions(PRODUCE_API, 9, 11)
"""All of them are flexible, and look the same as far as we fill them in."""

_TRANSACTION_MS = 60_000
_PRODUCE_SECONDS = 30.0
_PIPELINED_REQUESTS = 5
"""Kafka remembers the last five batches of a producer in a partition."""
_REQUEST_BYTES = 4 * MIB
_BEGIN_SECONDS = 90.0
"""How long a transaction may take to end that somebody else has begun: a little longer than it may last."""
_AGAIN_SECONDS = 0.005
_LONGEST_AGAIN_SECONDS = 0.2
_ACKS_ALL = -1
_MOST_SEQUENCE = 0x7FFFFFFF

_HEAD = Struct(">qii")
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43
_CRC = Struct(">I")
_CRC_AT = 17
_LENGTH_FIELD = 12
_PRODUCE_HEAD = Struct(">hi")
_PARTITION = Struct(">i")


class Written(NamedTuple):
    """Where a batch lies in the target."""

    partition: Partition
    batch: PackedBatch
    base_offset: int


class TransactionWriter:
    """Used on the event loop, by one task."""

    def __init__(self, cluster: KafkaCluster, transactional_id: str, group: str, on_written: Callable[[Written], None]) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._group = group
        self._on_written = on_written
        self._producer_id = -1
        self._epoch = -1
        self._leaders: dict[Partition, int] = {}
        self._sequences: dict[Partition, int] = defaultdict(int)
        self._in_transaction: set[Partition] = set()
        self._has_group = False
        self._is_open = False
        self._lanes: dict[int, _Lane] = {}

    async def begin(self) -> None:
        """Fence every other writer with this id, and abort what it had under way."""
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=_TRANSACTION_MS)
        response = await self._ask(
            _INIT, request, InitProducerIdResponse, lambda found: (found.error_code,), "gives no producer id", _BEGIN_SECONDS
        )
        self._producer_id = response.producer_id
        self._epoch = response.producer_epoch

    def follow(self, places: Mapping[str, TopicPlace]) -> None:
        """Learn the leaders of partitions."""
        for place in places.values():
            for number, leader in enumerate(place.leaders):
                self._leaders[place.name, number] = leader

    @property
    def is_open(self) -> bool:
        """Whether something was written since the last commit."""
        return self._is_open

    async def write(self, batches: Sequence[tuple[Partition, PackedBatch]]) -> None:
        """Write batches in order. They are sent on return, except the last few, and not acknowledged."""
        await self._add_partitions({partition for partition, _ in batches} - self._in_transaction)
        by_leader: dict[int, list[tuple[Partition, PackedBatch]]] = defaultdict(list)
        for partition, batch in batches:
            by_leader[self._leader(partition)].append((partition, batch))
        for leader, own in by_leader.items():
            await self._lane(leader).write(own)

    async def commit(self, positions: Mapping[Partition, CommittedPosition]) -> None:
        """Commit what was written together with positions of the origin. Raises if that is refused or not known."""
        await self.settle()
        self._is_open = True
        if not self._has_group:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=self._group,
            )
            await self._ask(
                _ADD_OFFSETS,
                request,
                AddOffsetsToTxnResponse,
                lambda found: (found.error_code,),
                "does not begin a transaction",
            )
            self._has_group = True
        await self._commit_offsets(positions)
        end = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        await self._ask(_END, end, EndTxnResponse, lambda found: (found.error_code,), "does not end a transaction")
        self._in_transaction.clear()
        self._has_group = self._is_open = False

    async def settle(self) -> None:
        """Wait until everything that was written is acknowledged. Raises what was refused."""
        for lane in self._lanes.values():
            await lane.settle()

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()

    async def _add_partitions(self, partitions: set[Partition]) -> None:
        if not partitions:
            return
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(partitions):
            topics[topic].append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers)) for name, numbers in topics.items()
            ),
        )

        def codes(found: AddPartitionsToTxnResponse) -> Sequence[int]:
            results = [(topic.name, one) for topic in found.results_by_topic_v3_and_below for one in topic.results_by_partition]
            for name, one in results:
                if one.partition_error_code in OF_ONE_TOPIC:
                    error = KafkaRefusalError(
                        one.partition_error_code, f"{self._cluster.what} takes nothing for topic {name!r}"
                    )
                    raise TopicRefusedError(name, error.message, error.advice)
            return [one.partition_error_code for _, one in results]

        names = ", ".join(topics)
        await self._ask(
            _ADD_PARTITIONS, request, AddPartitionsToTxnResponse, codes, f"does not take records for {names} in a transaction"
        )
        self._in_transaction |= partitions
        self._is_open = True

    async def _commit_offsets(self, positions: Mapping[Partition, CommittedPosition]) -> None:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, number), position in positions.items():
            topics[topic].append(
                TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=position.offset, committed_metadata=position.metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=self._group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=tuple(TxnOffsetCommitRequestTopic(name=name, partitions=tuple(own)) for name, own in topics.items()),
        )

        def codes(found: TxnOffsetCommitResponse) -> Sequence[int]:
            return [one.error_code for topic in found.topics for one in topic.partitions]

        await self._ask(
            _COMMIT_OFFSETS, request, TxnOffsetCommitResponse, codes, "does not take the positions of the copy", kind=GROUP
        )

    async def _ask(
        self,
        used: Versions,
        request: KafkaMessage,
        response: type[R],
        codes: Callable[[R], Sequence[int]],
        what: str,
        seconds: float = _PRODUCE_SECONDS,
        *,
        kind: int = TRANSACTION,
    ) -> R:
        """Ask the coordinator, again while it is busy with the transaction before or moves. These may be asked twice."""
        key = self._group if kind == GROUP else self._transactional_id
        deadline = asyncio.get_running_loop().time() + seconds
        pause = _AGAIN_SECONDS
        while True:
            found = await self._cluster.ask_coordinator(kind, key, used, request, response)
            refused = {code for code in codes(found) if code}
            if not refused:
                return found
            if refused & FENCED:
                raise self._fenced()
            error = KafkaRefusalError(min(refused), f"{self._cluster.what} {what}")
            may_pass = {CONCURRENT_TRANSACTIONS, *COORDINATOR_MOVES}
            if not refused & may_pass or asyncio.get_running_loop().time() > deadline:
                raise error
            if refused & COORDINATOR_MOVES:
                self._cluster.forget_coordinator(kind, key)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_AGAIN_SECONDS)

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another process writes to {self._cluster.what} with the transactional id {self._transactional_id!r}, or a"
            f" transaction took longer than {_TRANSACTION_MS // 1000} s",
            "It is tried again by itself. If it lasts, find the other process: a copy of this server, for instance",
        )

    def _leader(self, partition: Partition) -> int:
        leader = self._leaders.get(partition, -1)
        if leader < 0:
            raise KafkaRefusalError(
                NOT_LEADER_OR_FOLLOWER, f"partition {partition[1]} of topic {partition[0]!r} has no leader in the target"
            )
        return leader

    def _lane(self, leader: int) -> "_Lane":
        lane = self._lanes.get(leader)
        if lane is None:
            lane = self._lanes[leader] = _Lane(self, leader)
        return lane

    async def connection(self, leader: int) -> BrokerConnection:
        return await self._cluster.broker(leader, "produce")

    def stamped(self, partition: Partition, batch: PackedBatch) -> Buffer:
        """Write this producer and the next sequence number into the head of a batch, and its checksum."""
        data = batch.data
        sequence = self._sequences[partition]
        self._sequences[partition] = (sequence + batch.records) & _MOST_SEQUENCE
        _HEAD.pack_into(data, 0, 0, len(data) - _LENGTH_FIELD, NO_LEADER_EPOCH)
        (attributes,) = _ATTRIBUTES.unpack_from(data, CHECKED_FROM)
        _ATTRIBUTES.pack_into(data, CHECKED_FROM, attributes | TRANSACTIONAL_MASK)
        _PRODUCER.pack_into(data, _PRODUCER_AT, self._producer_id, self._epoch, sequence)
        _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[CHECKED_FROM:]))
        return data

    def produce_body(self, batches: Mapping[Partition, PackedBatch]) -> list[Buffer]:
        """Return a request for one batch of each partition, as buffers to be sent one after another."""
        head = bytearray()
        _write_string(head, self._transactional_id)
        head += _PRODUCE_HEAD.pack(_ACKS_ALL, round(_PRODUCE_SECONDS * 1000))
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in batches:
            topics[topic].append(number)
        write_unsigned_varint(head, len(topics) + 1)
        parts: list[Buffer] = []
        for topic, numbers in topics.items():
            _write_string(head, topic)
            write_unsigned_varint(head, len(numbers) + 1)
            for number in numbers:
                data = self.stamped((topic, number), batches[topic, number])
                head += _PARTITION.pack(number)
                write_unsigned_varint(head, len(data) + 1)
                parts += (head, data)
                head = bytearray(b"\0")
            head += b"\0"
        head += b"\0"
        parts.append(head)
        return parts

    def acknowledge(self, response: ProduceResponse, batches: Mapping[Partition, PackedBatch]) -> None:
        """Take the answer to a request. Raises `ShadowError` for the first batch that was refused."""
        for topic in response.responses:
            for one in topic.partition_responses:
                partition = topic.name, one.index
                if one.error_code in FENCED:
                    raise self._fenced()
                if one.error_code:
                    batch = batches[partition]
                    error = KafkaRefusalError(
                        one.error_code,
                        f"{self._cluster.what} does not take {batch.records} records ({len(batch.data)} bytes) for partition"
                        f" {one.index} of topic {topic.name!r}, which begin at offset {batch.runs[0].origin} of the origin",
                        one.error_message,
                    )
                    if one.error_code in OF_ONE_TOPIC:
                        raise TopicRefusedError(topic.name, error.message, error.advice)
                    raise error
                self._on_written(Written(partition, batches[partition], one.base_offset))


class _Lane:
    """What goes to one broker: a few requests at a time, each with at most one batch of a partition."""

    def __init__(self, writer: TransactionWriter, leader: int) -> None:
        self._writer = writer
        self._leader = leader
        self._waiting: dict[Partition, deque[PackedBatch]] = {}
        """The partition whose turn is next comes first."""
        self._sent: deque[_SentRequest] = deque()

    async def write(self, batches: Sequence[tuple[Partition, PackedBatch]]) -> None:
        for partition, batch in batches:
            self._waiting.setdefault(partition, deque()).append(batch)
        while self._waiting:
            await self._settle(_PIPELINED_REQUESTS - 1)
            await self._send()

    async def settle(self) -> None:
        await self._settle(0)

    def close(self) -> None:
        for sent in self._sent:
            sent.answer.cancel()

    async def _send(self) -> None:
        connection = await self._writer.connection(self._leader)
        version = connection.version(_PRODUCE)
        if self._sent and self._sent[-1].connection is not connection:
            raise UnreachableError(
                "the connection to the target was lost while records were sent", "It is tried again by itself"
            )
        chosen: dict[Partition, PackedBatch] = {}
        size = 0
        while self._waiting and size < _REQUEST_BYTES:
            partition = next(iter(self._waiting))
            if partition in chosen:
                break
            queue = self._waiting.pop(partition)
            chosen[partition] = queue.popleft()
            size += len(chosen[partition].data)
            if queue:
                self._waiting[partition] = queue
        await connection.writable()
        body = self._writer.produce_body(chosen)
        answer = connection.send_parts(PRODUCE_API, version, body, seconds=_PRODUCE_SECONDS)
        self._sent.append(_SentRequest(connection, version, answer, chosen))

    async def _settle(self, most: int) -> None:
        """Wait until at most so many requests are not answered."""
        while len(self._sent) > most or (self._sent and self._sent[0].answer.done()):
            sent = self._sent[0]
            data = await sent.answer
            self._sent.popleft()
            response = sent.connection.decode(PRODUCE_API, sent.version, data, ProduceResponse)
            self._writer.acknowledge(response, sent.batches)


class _SentRequest(NamedTuple):
    connection: BrokerConnection
    version: int
    answer: "asyncio.Future[bytearray]"
    batches: dict[Partition, PackedBatch]


def _write_string(out: bytearray, text: str) -> None:
    data = text.encode()
    write_unsigned_varint(out, len(data) + 1)
    out += data
