"""Every way of appending records to a topic respects its fence, and takes up again behind it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import count

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.broker.publishing.fast_append import FastAppend
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Changes
from tailrace.model.errors import CutOverTopicError, FencedTopicError, TailraceError
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.pipeline import ROUTER, MarkMove
from tailrace.model.record import Appended, Message, NumberedPublish, RawBatch, Record
from tailrace.model.shadow import LocalProducers
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.records import encode_batch
from tailrace.wire.route_decisions import QueryDecisions, RouteDecision
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop, until
from tests.support.batches import TIMESTAMP
from tests.support.brokers import GatedStore, append, bounds_of, options, raw, running_broker, values_in
from tests.support.queues import QueueConsumer, publish, values
from tests.support.shadows import OWNER, created, fenced, unfenced
from tests.support.sql import SqlClient, running_sql
from tests.support.transactions import TIMEOUT_MS

TOPIC = "app.t"
MEDIUM = msgspec.structs.replace(DEFAULT_LIMITS, frame_bytes=2 * MIB, group_commit_bytes=MIB // 2)
SMALL = msgspec.structs.replace(DEFAULT_LIMITS, frame_bytes=2_000, group_commit_bytes=500)

Write = Callable[[], Awaitable[object]]
WAYS: dict[str, Callable[[SqlClient], Awaitable[Write]]] = {}


def way(prepare: Callable[[SqlClient], Awaitable[Write]]) -> Callable[[SqlClient], Awaitable[Write]]:
    """Register a way of writing: it prepares what it needs, and returns what writes at least one record to the topic."""
    WAYS[prepare.__name__] = prepare
    return prepare


async def _append(broker: Broker, *batches: RawBatch, adds_partitions: bool = False) -> None:
    for outcome in await broker.appender.append(batches, adds_partitions=adds_partitions):
        if isinstance(outcome, TailraceError):
            raise outcome


def _sequenced(
    identity: ProducerIdentity, sequence: int, *, transactional: bool = False, topic: str = TOPIC, value: bytes = b"v"
) -> RawBatch:
    batch = encode_batch(
        [Record(None, value, (), TIMESTAMP)],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return RawBatch(topic, 0, batch)


@way
async def kafka_produce_on_the_fast_path(sql: SqlClient) -> Write:
    return lambda: _append(sql.broker, raw(TOPIC, 0, b"v"))


@way
async def kafka_produce_with_append_time(sql: SqlClient) -> Write:
    await sql.broker.topics.alter(TOPIC, options(timestamps="append"))
    return lambda: _append(sql.broker, raw(TOPIC, 0, b"v"))


@way
async def kafka_produce_of_several_partitions(sql: SqlClient) -> Write:
    return lambda: _append(sql.broker, raw(TOPIC, 0, b"v"), raw(TOPIC, 1, b"w"))


@way
async def kafka_produce_to_a_topic_that_compresses(sql: SqlClient) -> Write:
    await sql.broker.topics.alter(TOPIC, options(compression="zstd"))
    return lambda: _append(sql.broker, raw(TOPIC, 0, b"v"))


@way
async def kafka_produce_to_a_topic_with_deduplication(sql: SqlClient) -> Write:
    await sql.broker.topics.alter(TOPIC, options(dedup="content"))
    numbers = count()
    return lambda: _append(sql.broker, raw(TOPIC, 0, b"%d" % next(numbers)))


def _idempotent(sql: SqlClient, identity: ProducerIdentity) -> Write:
    sequence = 0

    async def write() -> None:
        nonlocal sequence
        await _append(sql.broker, _sequenced(identity, sequence))
        sequence += 1

    return write


@way
async def kafka_idempotent_produce_on_the_fast_path(sql: SqlClient) -> Write:
    return _idempotent(sql, ProducerIdentity(await sql.broker.producers.allocate(), 0))


@way
async def kafka_idempotent_produce_with_append_time(sql: SqlClient) -> Write:
    await sql.broker.topics.alter(TOPIC, options(timestamps="append"))
    return _idempotent(sql, ProducerIdentity(await sql.broker.producers.allocate(), 0))


@way
async def kafka_transaction(sql: SqlClient) -> Write:
    numbers = count()

    async def write() -> None:
        name = f"tx-{next(numbers)}"
        identity = await sql.broker.transactions.init_producer(name, TIMEOUT_MS)
        await sql.broker.transactions.add_partitions(name, identity, [(TOPIC, 0)])
        try:
            await _append(sql.broker, _sequenced(identity, 0, transactional=True))
        except TailraceError:
            await sql.broker.transactions.end(name, identity, committed=False)
            raise
        await sql.broker.transactions.end(name, identity, committed=True)

    return write


@way
async def kafka_transaction_that_adds_partitions_by_writing(sql: SqlClient) -> Write:
    numbers = count()

    async def write() -> None:
        name = f"tx-{next(numbers)}"
        identity = await sql.broker.transactions.init_producer(name, TIMEOUT_MS)
        await _append(sql.broker, _sequenced(identity, 0, transactional=True), adds_partitions=True)
        await sql.broker.transactions.end(name, identity, committed=True, bumps_epoch=True)

    return write


@way
async def http_publish(sql: SqlClient) -> Write:
    return lambda: sql.broker.publisher.publish([Message("other", b"o"), Message(TOPIC, b"v", b"k")])


@way
async def http_publish_of_a_large_value(sql: SqlClient) -> Write:
    return lambda: sql.broker.publisher.publish([Message(TOPIC, b"v" * 200_000, b"k")])


@way
async def http_publish_that_is_compressed(sql: SqlClient) -> Write:
    await sql.broker.topics.alter(TOPIC, options(compression="zstd"))
    return lambda: sql.broker.publisher.publish([Message(TOPIC, b"v" * 8_000, b"k")])


@way
async def http_numbered_publish(sql: SqlClient) -> Write:
    numbers = count()
    return lambda: sql.broker.publisher.publish_once(NumberedPublish("me", next(numbers)), [Message(TOPIC, b"v")])


@way
async def sql_insert_into_the_topic(sql: SqlClient) -> Write:
    return lambda: sql.run(f"INSERT INTO {TOPIC} (key, value) VALUES ('k', 'v')")


@way
async def sql_insert_of_a_query(sql: SqlClient) -> Write:
    await sql.run("CREATE TABLE rows (id BIGINT PRIMARY KEY, body TEXT)")
    await sql.run("INSERT INTO rows VALUES (1, 'a'), (2, 'b')")
    return lambda: sql.run(f"INSERT INTO {TOPIC} (key, value) SELECT id, body FROM rows")


@way
async def sql_transaction_over_a_table_and_the_topic(sql: SqlClient) -> Write:
    await sql.run("CREATE TABLE rows (id BIGINT PRIMARY KEY, body TEXT)")
    numbers = count()

    async def write() -> None:
        before = await sql.rows("SELECT count(*) FROM rows")
        try:
            await sql.run(
                f"BEGIN; INSERT INTO rows VALUES ({next(numbers)}, 'a'); INSERT INTO {TOPIC} (value) VALUES ('v'); COMMIT"
            )
        except TailraceError:
            assert await sql.rows("SELECT count(*) FROM rows") == before
            raise

    return write


@way
async def redrive(sql: SqlClient) -> Write:
    broker = sql.broker
    for number in range(5):
        await publish(broker, TOPIC, b"%d" % number)
    consumer = QueueConsumer(broker, pattern=TOPIC, max_deliveries=1)
    for delivery in await consumer.receive(5):
        await consumer.nack(delivery)
    await until(lambda: broker.queues.dead_letters.letters == 5)
    return lambda: sql.run(f"REDRIVE DEAD LETTERS OF {TOPIC} LIMIT 1")


def _staged_chunk(sql: SqlClient, moves: list[MarkMove], value: bytes = b"v") -> bytes:
    live = sql.broker.topics.get(TOPIC)
    return encode_staged_chunk(
        StagedChunk(moves, [StagedBatch(live.topic.id, TOPIC, 0, raw(TOPIC, 0, value).batch, live.topic.id)])
    )


@way
async def step_of_the_router(sql: SqlClient) -> Write:
    broker = sql.broker
    epoch = (await broker.pipelines.lease(ROUTER, "test")).epoch
    await broker.pipelines.pin(ROUTER, epoch, {"1/0": 0})
    names = count()

    async def write() -> None:
        at = broker.pipelines.marks(ROUTER)["1/0"]
        name = f"stage-{next(names)}"
        await broker.pipelines.stage(ROUTER, name, 0, _staged_chunk(sql, [MarkMove("1/0", at, at + 1)]))
        try:
            await broker.pipelines.publish(ROUTER, epoch, [Stage(name, 1)])
        except TailraceError:
            assert broker.pipelines.marks(ROUTER)["1/0"] == at
            raise

    return write


def _batch_of_a_query(sql: SqlClient, chunks: int) -> Write:
    numbers = count()

    async def write() -> None:
        number = next(numbers)
        parts = b"".join(_staged_chunk(sql, [], b"%03d" % at * 50_000) for at in range(chunks))
        await sql.broker.pipelines.stage("q", f"stage-{number}", 0, parts)
        move = MarkMove("batch", None, number)
        assert await sql.broker.pipelines.write("query", [Stage(f"stage-{number}", 1)], move, 10) is not None

    return write


@way
async def batch_of_a_spark_query(sql: SqlClient) -> Write:
    return _batch_of_a_query(sql, 1)


@way
async def large_batch_of_a_spark_query(sql: SqlClient) -> Write:
    return _batch_of_a_query(sql, 20)


@way
async def decisions_in_real_time(sql: SqlClient) -> Write:
    broker = sql.broker
    await sql.run("CREATE TABLE chat (id BIGINT PRIMARY KEY)")
    epoch = (await broker.pipelines.lease(ROUTER, "test")).epoch
    await sql.run(f"ALTER TOPIC {TOPIC} ADD SOURCE chat ON INSERT")
    (route,) = broker.routes
    await broker.intake.open()
    await broker.routing.first_unrouted(epoch)
    version = broker.intake.version
    ids = count()

    async def write() -> None:
        await sql.run(f"INSERT INTO chat VALUES ({next(ids)})")
        # Those of earlier attempts come again, as the query sends them when it starts again from its marks.
        read = await broker.committed_reader.read("_changes.chat", 0, _mark(broker), max_records=100)
        await broker.intake.take(
            QueryDecisions(epoch, version, [RouteDecision(record.cursor, (route.id,), {}) for record in read.records])
        )

    return write


def _mark(broker: Broker) -> Offset:
    return Offset(next(iter(broker.pipelines.marks(ROUTER).values())))


EVERY_WAY = pytest.mark.parametrize("prepare", [pytest.param(prepare, id=name) for name, prepare in WAYS.items()])


@EVERY_WAY
@on_loop
async def test_a_fence_stops_each_way_of_writing_and_only_while_it_is_there(
    prepare: Callable[[SqlClient], Awaitable[Write]],
) -> None:
    async with running_sql(limits=MEDIUM) as sql:
        broker = sql.broker
        await broker.topics.create(TOPIC, 2)
        await broker.topics.create("other")
        write = await prepare(sql)
        await write()
        producers: LocalProducers = "forward" if len(broker.routes) else "refuse"
        shadow = await fenced(broker, producers)
        before = _ends(broker)
        for _ in range(2):
            with pytest.raises(FencedTopicError):
                await write()
        assert _ends(broker) == before
        await unfenced(broker, shadow)
        await write()
        assert _ends(broker) > before


@EVERY_WAY
@on_loop
async def test_records_are_refused_or_taken_after_a_cut_over_as_was_chosen(
    prepare: Callable[[SqlClient], Awaitable[Write]],
) -> None:
    async with running_sql(limits=MEDIUM) as sql:
        broker = sql.broker
        await broker.topics.create(TOPIC, 2)
        await broker.topics.create("other")
        write = await prepare(sql)
        shadow = await created(broker)
        if not len(broker.routes):
            shadow = await broker.cut_overs.fence(shadow, OWNER, "refuse")
            await broker.cut_overs.finish(shadow, "refuse", shadow.fences)
            before = _ends(broker)
            with pytest.raises(CutOverTopicError):
                await write()
            assert _ends(broker) == before
            await broker.cut_overs.roll_back(shadow, None)
        shadow = await broker.cut_overs.fence(shadow, OWNER, "forward")
        await broker.cut_overs.finish(shadow, "forward", shadow.fences)
        before = _ends(broker)
        await write()
        assert _ends(broker) > before


def _ends(broker: Broker) -> list[int]:
    return [bounds_of(broker, TOPIC, number).end for number in range(2)]


@on_loop
async def test_what_was_stored_before_the_fence_is_confirmed_when_it_is_sent_again() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        identity = ProducerIdentity(await broker.producers.allocate(), 0)
        first = await append(broker, _sequenced(identity, 0))
        shadow = await fenced(broker)
        again = await append(broker, _sequenced(identity, 0))
        assert (again.base_offset, again.cursor) == (first.base_offset, None)
        # The second has a gap before it once the first of them is refused: that is no error of the producer.
        outcomes = await asyncio.gather(*(append(broker, _sequenced(identity, at)) for at in (1, 2)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [FencedTopicError, FencedTopicError]
        await unfenced(broker, shadow)
        assert [(await append(broker, _sequenced(identity, at))).base_offset for at in (1, 2)] == [1, 2]


@on_loop
async def test_a_transaction_that_is_open_at_the_fence_takes_no_more_records_and_can_end() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        identity = await broker.transactions.init_producer("tx", TIMEOUT_MS)
        await _append(broker, _sequenced(identity, 0, transactional=True), adds_partitions=True)
        await fenced(broker)
        again = await append(broker, _sequenced(identity, 0, transactional=True))
        assert again.base_offset == 0
        with pytest.raises(FencedTopicError):
            await _append(broker, _sequenced(identity, 1, transactional=True), adds_partitions=True)
        await broker.transactions.end("tx", identity, committed=True)
        assert bounds_of(broker, TOPIC).end == 2
        assert await values_in(broker, TOPIC) == [b"v"]


@on_loop
async def test_a_request_is_refused_only_for_its_topics_that_are_fenced() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        await broker.topics.create("other")
        await fenced(broker)
        outcomes = await broker.appender.append([raw(TOPIC, 0, b"a"), raw("other", 0, b"b")])
        assert [type(outcome) for outcome in outcomes] == [FencedTopicError, Appended]


async def _decided_large_write(broker: Broker, store: GatedStore) -> "asyncio.Future[object]":
    """Begin a write of ten records that takes several frames. It is decided on, and nothing of it is written."""
    live = broker.topics.get(TOPIC)
    batches = [StagedBatch(live.topic.id, TOPIC, 0, raw(TOPIC, 0, b"%d" % at * 300).batch) for at in range(10)]
    await broker.pipelines.stage("q", "a", 0, b"".join(encode_staged_chunk(StagedChunk([], [one])) for one in batches))
    store.close_gate()
    writing = asyncio.ensure_future(broker.pipelines.write("query", [Stage("a", 1)], MarkMove("batch", None, 0), 10))
    await until(lambda: bool(store.in_flight))
    store.settle(1)
    return writing  # type: ignore[return-value]


@on_loop
async def test_a_large_write_that_was_decided_before_the_fence_is_finished_behind_it() -> None:
    store = GatedStore(limits=SMALL)
    async with running_broker(store, limits=SMALL) as broker:
        await broker.topics.create(TOPIC)
        shadow = await created(broker)
        writing = await _decided_large_write(broker, store)
        fencing = asyncio.ensure_future(broker.cut_overs.fence(shadow, OWNER, "refuse"))
        store.open_gate()
        await fencing
        assert await writing is not None
        assert len(await values_in(broker, TOPIC)) == 10
        assert broker.cut_overs.open_writes() == 0


@on_loop
async def test_a_large_write_that_is_decided_is_finished_after_a_restart_behind_the_fence() -> None:
    store = GatedStore(limits=SMALL)
    async with running_broker(store, limits=SMALL) as broker:
        await broker.topics.create(TOPIC)
        await created(broker)
        writing = await _decided_large_write(broker, store)
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(TailraceError):
            await writing
        assert broker.cut_overs.open_writes() == 1
        store.open_gate()
        await broker.cut_overs.fence(broker.shadows.get("prod"), OWNER, "refuse")
    async with running_broker(store, limits=SMALL) as broker:
        await until(lambda: broker.cut_overs.open_writes() == 0)
        assert len(await values_in(broker, TOPIC)) == 10
        assert broker.shadows.get("prod").phase == "fenced"


@on_loop
async def test_dead_letters_wait_for_the_end_of_a_fence_and_acknowledgements_do_not() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        await publish(broker, TOPIC, b"poison", b"good", b"better")
        consumer = QueueConsumer(broker, pattern=TOPIC, max_deliveries=1)
        poison, good, better = await consumer.receive(3)
        await consumer.nack(better)
        await until(lambda: broker.queues.dead_letters.letters == 1)
        shadow = await fenced(broker)
        await consumer.nack(poison)
        await consumer.ack(good)
        assert broker.queues.dead_letters.letters == 1
        await unfenced(broker, shadow)
        # It is not delivered again: the next attempt to move it takes the place of that.
        assert values(await consumer.receive(5)) == []


class _CountedFence:
    """Stands for `LiveTopic.fence`, and counts how often it is looked at."""

    def __init__(self) -> None:
        self.reads = 0

    def __get__(self, live: object, owner: object = None) -> None:
        self.reads += 1

    def __set__(self, live: object, value: object) -> None:
        pass


@on_loop
async def test_without_fences_a_batch_costs_one_look_at_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        await created(broker)
        fence = _CountedFence()
        monkeypatch.setattr(LiveTopic, "fence", fence)
        called: list[str] = []

        def trace(frame: object, event: str, _: object) -> None:
            code = frame.f_code  # type: ignore[attr-defined]
            is_of_fences = "/shadows/" in code.co_filename or code.co_name in ("check_takes_records", "stored_before_fence")
            if event == "call" and is_of_fences and "/broker/" in code.co_filename and "/tests/" not in code.co_filename:
                called.append(code.co_name)

        identity = ProducerIdentity(await broker.producers.allocate(), 0)
        commits: list[FastAppend] = []
        decide = FastAppend.decide

        def counted(self: FastAppend) -> Changes | None:
            commits.append(self)
            return decide(self)

        monkeypatch.setattr(FastAppend, "decide", counted)
        sys.setprofile(trace)
        try:
            await asyncio.gather(
                *(append(broker, raw(TOPIC, 0, b"v")) for _ in range(10)),
                *(append(broker, _sequenced(identity, at)) for at in range(10)),
            )
        finally:
            sys.setprofile(None)
        assert commits
        assert fence.reads == 20
        assert called == []
