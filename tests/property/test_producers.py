"""Idempotent producers against a model: whatever is sent, resent, lost or restarted, each batch is stored once and in order."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import OutOfOrderSequenceError, ProducerFencedError, StorageFullError
from tailrace.model.record import Appended
from tests.support.aio import turns
from tests.support.brokers import GatedStore, placed, raw, running_broker, values_in

PRODUCERS = 2

send = st.tuples(st.just("send"), st.integers(0, PRODUCERS - 1), st.integers(1, 3))
resend = st.tuples(st.just("resend"), st.integers(0, PRODUCERS - 1), st.integers(0, 8))
skip = st.tuples(st.just("skip"), st.integers(0, PRODUCERS - 1), st.integers(1, 5))
bump = st.tuples(st.just("bump"), st.integers(0, PRODUCERS - 1), st.just(0))
old = st.tuples(st.just("old"), st.integers(0, PRODUCERS - 1), st.just(0))
settle = st.tuples(st.just("settle"), st.just(0), st.integers(1, 3))
fail = st.tuples(st.just("fail"), st.just(0), st.just(0))
restart = st.tuples(st.just("restart"), st.just(0), st.just(0))


class Model:
    """The partition as it is if everything in flight succeeds, and as it is if nothing of it does."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.batches: dict[int, list[tuple[int, int, int, int]]] = {producer: [] for producer in range(PRODUCERS)}
        """By producer: epoch, sequence, count and offset of each batch."""
        self.epochs = [0] * PRODUCERS

    def copy(self) -> "Model":
        twin = Model()
        twin.log = list(self.log)
        twin.batches = {producer: list(batches) for producer, batches in self.batches.items()}
        twin.epochs = list(self.epochs)
        return twin

    def next_sequence(self, producer: int) -> int:
        batches = self.batches[producer]
        if not batches or batches[-1][0] != self.epochs[producer]:
            return 0
        return batches[-1][1] + batches[-1][2]

    def add(self, producer: int, sequence: int, values: list[bytes]) -> int:
        offset = len(self.log)
        self.batches[producer].append((self.epochs[producer], sequence, len(values), offset))
        self.log += values
        return offset


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(send, send, send, resend, resend, skip, bump, old, settle, settle, fail, restart), max_size=40))
def test_producers_equal_the_model(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, int, int]]) -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        ids = [await broker.producers.allocate() for _ in range(PRODUCERS)]
    broker_context = running_broker(store)
    broker = await broker_context.__aenter__()
    store.close_gate()
    latest = Model()
    durable = latest.copy()
    # What each commit in flight leaves behind, and the answers that are due, in order.
    after: list[Model] = []
    due: list[tuple[asyncio.Future[list[object]], int, bool]] = []
    counter = 0

    async def deliver(producer: int, epoch: int, sequence: int, values: list[bytes]) -> "asyncio.Future[list[object]]":
        fields = {"producer_id": ids[producer], "producer_epoch": epoch, "base_sequence": sequence}
        future = broker.appender.append([raw("t", 0, *values, **fields)])
        await turns(3)
        return future  # type: ignore[return-value]

    async def check_due(failed: bool = False) -> None:
        await turns(5)
        for future, offset, duplicate in due:
            if not future.done():
                continue
            if failed and not duplicate:
                assert isinstance(future.exception(), StorageFullError)
            elif not failed:
                (outcome,) = future.result()
                assert isinstance(outcome, Appended)
                assert outcome.base_offset == offset
                assert bool(outcome.duplicates) == duplicate
        due[:] = [each for each in due if not each[0].done()]

    for step, producer, number in steps:
        epoch = latest.epochs[producer]
        if step == "send":
            sequence = latest.next_sequence(producer)
            values = [b"%d" % (counter + place) for place in range(number)]
            counter += number
            future = await deliver(producer, epoch, sequence, values)
            offset = latest.add(producer, sequence, values)
            after.append(latest.copy())
            due.append((future, offset, False))
        elif step == "resend":
            known = [
                batch for batch in durable.batches[producer] if batch[0] == epoch and batch in latest.batches[producer][-5:]
            ]
            if known:
                _, sequence, count, offset = known[number % len(known)]
                future = await deliver(producer, epoch, sequence, durable.log[offset : offset + count])
                (outcome,) = future.result()
                assert outcome == placed(offset, None, duplicates=count)
        elif step == "skip":
            sequence = latest.next_sequence(producer) + number
            if latest.batches[producer] and latest.batches[producer][-1][0] == epoch:
                (outcome,) = (await deliver(producer, epoch, sequence, [b"never"])).result()
                assert isinstance(outcome, OutOfOrderSequenceError)
        elif step == "bump":
            if latest.batches[producer]:
                latest.epochs[producer] += 1
                future = await deliver(producer, latest.epochs[producer], 0, [b"%d" % counter])
                offset = latest.add(producer, 0, [b"%d" % counter])
                counter += 1
                after.append(latest.copy())
                due.append((future, offset, False))
        elif step == "old":
            if epoch > 0:
                (outcome,) = (await deliver(producer, epoch - 1, 0, [b"never"])).result()
                assert isinstance(outcome, ProducerFencedError)
        elif step == "settle":
            settled = min(number, len(after))
            store.settle(number)
            if settled:
                durable = after[settled - 1]
                del after[:settled]
            await check_due()
        elif step == "fail":
            store.fail()
            after.clear()
            latest = durable.copy()
            await check_due(failed=True)
            assert not due
        elif step == "restart":
            store.open_gate()
            durable = latest.copy()
            after.clear()
            await check_due()
            await broker_context.__aexit__(None, None, None)
            broker_context = running_broker(store)
            broker = await broker_context.__aenter__()
            store.close_gate()
        assert len(store.in_flight) == len(after)
    store.open_gate()
    await check_due()
    assert not due
    assert await values_in(broker, "t") == latest.log
    await broker_context.__aexit__(None, None, None)
