"""Consume, process, produce: reads an input topic, writes two records for each, and commits its offset in one transaction.

Some transactions are aborted on purpose. After one whose end is unknown, a new producer with the same name takes over, which
ends what the old one left open, and continues at the group's offset.
"""

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from chaos.history import CallOutcome, RecordLocation, SeenRecord, TransactionCall
from chaos.workers.librdkafka import COMMON, SURFACE, open_consumer, split_messages
from chaos.workers.worker import RunTopic, Worker, WorkerContext, all_locations, call_with_timeout, following

CALL_SECONDS = 8.0
STUCK_SECONDS = CALL_SECONDS + 2.0


class Processor(Worker):
    """Processes some partitions of the input, alone."""

    surface = SURFACE

    def __init__(
        self,
        name: str,
        context: WorkerContext,
        seed: int,
        per_second: float,
        source: Sequence[RecordLocation],
        target: RunTopic,
        group: str,
    ) -> None:
        super().__init__(name, context, seed, per_second)
        self._source = source
        self._target = all_locations([target])
        self._group = group
        self._committed: dict[tuple[str, int], int] = {}
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    def step(self) -> None:
        if self._producer is None and not self._take_over():
            self.pause(0.5)
            return
        assert self._consumer is not None
        try:
            seen, _ = split_messages(self._consumer.consume(self.choice.randint(1, 8), 0.3))
        except KafkaException:
            return
        if seen:
            self._process(seen)

    def end(self) -> None:
        self._close_clients()

    def _take_over(self) -> bool:
        """Open a producer that ends what is open, and a consumer at the group's offset. Return whether that worked."""
        producer = Producer(
            {
                **COMMON,
                "bootstrap.servers": self.context.kafka,
                "transactional.id": self.name,
                "transaction.timeout.ms": 8_000,
                "socket.timeout.ms": 6_000,
                "request.timeout.ms": 4_000,
                "message.timeout.ms": 8_000,
                "linger.ms": 1,
            }
        )
        consumer = open_consumer(self.context.kafka, self._group)
        try:
            call_with_timeout(STUCK_SECONDS, producer.init_transactions, CALL_SECONDS)
            asked = [TopicPartition(location.topic, location.partition) for location in self._source]
            offsets = consumer.committed(asked, CALL_SECONDS)
            if any(each.error is not None for each in offsets):
                raise KafkaException(next(each.error for each in offsets if each.error is not None))
        except (KafkaException, TimeoutError):
            consumer.close()
            return False
        self._committed = {(each.topic, each.partition): max(each.offset, 0) for each in offsets}
        self._producer, self._consumer = producer, consumer
        self._rewind()
        return True

    def _process(self, seen: Sequence[SeenRecord]) -> None:
        assert self._producer is not None and self._consumer is not None
        aborts = self.choice.random() < 0.15
        records = tuple((self.choice.choice(self._target), self.new_value()) for _ in range(2 * len(seen)))
        after = following(seen)
        offsets = tuple(RecordLocation(*partition, offset) for partition, offset in after.items())
        reads = tuple(each.value for each in seen)
        what = TransactionCall(self.name, records, reads, self._group, offsets, aborted=aborts)
        call = self.context.recorder.invoke(self.name, SURFACE, what)
        try:
            self._write(records, offsets)
        except (KafkaException, BufferError) as error:
            self._give_up(call, str(error))
        except TimeoutError:
            self._unknown(call, "the records or offsets were not answered")
        else:
            if aborts:
                self._give_up(call, "")
            else:
                self._commit(call, after)

    def _write(self, records: Sequence[tuple[RecordLocation, str]], offsets: Sequence[RecordLocation]) -> None:
        assert self._producer is not None and self._consumer is not None
        producer = self._producer
        producer.begin_transaction()
        for location, value in records:
            producer.produce(location.topic, value, partition=location.partition)
        positions = [TopicPartition(*location) for location in offsets]
        metadata = self._consumer.consumer_group_metadata()
        call_with_timeout(STUCK_SECONDS, producer.send_offsets_to_transaction, positions, metadata, CALL_SECONDS)
        call_with_timeout(STUCK_SECONDS, producer.flush, CALL_SECONDS)

    def _commit(self, call: int, after: Mapping[tuple[str, int], int]) -> None:
        assert self._producer is not None
        for _ in range(3):
            try:
                call_with_timeout(STUCK_SECONDS, self._producer.commit_transaction, CALL_SECONDS)
            except KafkaException as error:
                kafka_error = error.args[0]
                if kafka_error.retriable():
                    continue
                if kafka_error.txn_requires_abort():
                    self._give_up(call, kafka_error.name())
                else:
                    self._unknown(call, kafka_error.name())
                return
            except TimeoutError:
                break
            self.context.recorder.complete(call, CallOutcome.OK)
            self._committed.update(after)
            return
        self._unknown(call, "the commit was not answered")

    def _give_up(self, call: int, why: str) -> None:
        """Abort. Without a commit nothing may ever be seen, so the outcome is failed, or ok if the abort was intended."""
        assert self._producer is not None
        try:
            call_with_timeout(STUCK_SECONDS, self._producer.abort_transaction, CALL_SECONDS)
        except KafkaException as error:
            self._unknown(call, f"{why}; {error.args[0].name()}")
        except TimeoutError:
            self._unknown(call, f"{why}; the abort was not answered")
        else:
            self.context.recorder.complete(call, CallOutcome.FAILED if why else CallOutcome.OK, error=why)
            self._rewind()

    def _unknown(self, call: int, why: str) -> None:
        self.context.recorder.complete(call, CallOutcome.UNKNOWN, error=why)
        self._close_clients()

    def _rewind(self) -> None:
        """Seek back to what was read and not committed."""
        assert self._consumer is not None
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in self._committed.items()])

    def _close_clients(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._producer = None
