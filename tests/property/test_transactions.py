"""Under any interleaving of producers, readers, failing disks and crashes, a reader of committed records sees all of a
transaction or nothing of it, never a record that is aborted later, and never fewer records than before.

A reader of uncommitted records shows which records exist, and the model knows the outcome of each transaction. Together they
say exactly what a reader of committed records must see.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.broker.broker import Broker
from tailrace.broker.isolation import committed_batches
from tailrace.model.errors import TailraceError
from tailrace.model.fetch import Isolation
from tailrace.model.transaction import ProducerIdentity
from tailrace.wire.batch import read_header
from tests.support.batches import decode_batch
from tests.support.brokers import NEVER, GatedStore, raw
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_SECONDS
from tests.support.transactions import TIMEOUT_MS, TOPIC, Producer, bounds, fetched

PARTITIONS = 2
GROUP = "g"
names = st.sampled_from(["old", "older", "new", "newer"])
partitions = st.integers(0, PARTITIONS - 1)


class Client:
    """A producer and its view of its transaction."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.transaction: str | None = None
        self.pending = 0
        """Requests without a response."""
        self.must_end: bool | None = None
        """Whether the transaction was to be committed when the response to its end was lost."""
        self.broken = False
        """Whether a send failed, so that the transaction can only be aborted."""


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = GatedStore(self.clock)
        self.broker: Broker
        self.clients: dict[str, Client] = {}
        self.outcomes: dict[str, bool | None] = {}
        """Whether a transaction is committed; `None` while it is open."""
        self.lost: set[str] = set()
        """Transactions whose end got no response: they may be committed or aborted, but not change between the two."""
        self.offsets: dict[str, int] = {}
        """The offset of the group that each transaction commits."""
        self.committed_offset: int | None = -1
        """`None` if it is uncertain, because an end got no response."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.count = 0
        self.stable = [0] * PARTITIONS
        self.seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.gated = False

    @initialize()
    def start(self) -> None:
        self.open_broker()
        self.loop.run_until_complete(self.broker.topics.create(TOPIC, PARTITIONS))
        for name in ("old", "older", "new", "newer"):
            self.take_over(name)

    @rule(name=names)
    def take_over(self, name: str) -> None:
        """Start a new instance of the producer. If it gets its epoch, the open transaction of the one before is aborted."""

        async def init() -> None:
            identity = await self.broker.transactions.init_producer(name, TIMEOUT_MS)
            before = self.clients.get(name)
            if before is not None:
                self.leave(before)
            self.clients[name] = Client(Producer(self.broker, name, identity, newer=name.startswith("new")))

        if name not in self.clients or not self.clients[name].pending:
            self.go(init(), self.clients.get(name))

    @rule(name=names, partition=partitions)
    def send(self, name: str, partition: int) -> None:
        client = self.clients.get(name)
        if client is None or client.must_end is not None or client.broken or (client.transaction is None and client.pending):
            return
        if client.transaction is None:
            client.transaction = self.new_transaction()
        self.count += 1
        value = f"{client.transaction}/{self.count}".encode()

        async def send() -> None:
            try:
                await client.producer.write(partition, value)
            except TailraceError:
                client.broken = True

        self.go(send(), client)

    @rule(name=names, offset=st.integers(0, 3))
    def send_offset(self, name: str, offset: int) -> None:
        client = self.clients.get(name)
        if client is None or client.must_end is not None or client.broken or client.pending:
            return
        if offset > bounds(self.broker, 0).end:
            return
        if client.transaction is None:
            client.transaction = self.new_transaction()
        transaction = client.transaction

        async def send() -> None:
            try:
                await client.producer.commit_offset(GROUP, 0, offset)
                self.offsets[transaction] = offset
            except TailraceError:
                client.broken = True

        self.go(send(), client)

    @rule(name=names, committed=st.booleans())
    def end(self, name: str, committed: bool) -> None:
        client = self.clients.get(name)
        if client is None or client.transaction is None or client.pending:
            return
        if client.must_end is not None:
            committed = client.must_end
        elif client.broken:
            committed = False
        transaction = client.transaction
        is_repeated = client.must_end is not None
        client.must_end = committed

        async def end() -> None:
            try:
                await client.producer.end(committed=committed)
            except TailraceError as error:
                if error.retriable:
                    return
                # Fenced, or never begun because every send failed: no reader may see it.
                self.leave(client)
            else:
                self.lost.discard(transaction)
                self.settle_fate(transaction, committed)
                if committed and transaction in self.offsets:
                    self.committed_offset = None if is_repeated else self.offsets[transaction]
            client.transaction = None
            client.must_end = None
            client.broken = False

        self.lost.add(transaction)
        self.go(end(), client)

    @rule(partition=partitions)
    def publish_plain(self, partition: int) -> None:
        self.count += 1

        async def publish() -> None:
            await self.broker.appender.append([raw(TOPIC, partition, f"plain/{self.count}".encode())])

        self.go(publish(), None)

    @rule(name=names, partition=partitions, epochs=st.integers(1, 3))
    def zombie_writes(self, name: str, partition: int, epochs: int) -> None:
        client = self.clients.get(name)
        if client is None or client.producer.identity.epoch < epochs:
            return
        identity = client.producer.identity
        old = ProducerIdentity(identity.producer_id, identity.epoch - epochs)
        zombie = Producer(self.broker, name, old, newer=client.producer.newer)

        async def write() -> None:
            for attempt in (
                lambda: zombie.write(partition, b"zombie"),
                lambda: zombie.commit_offset(GROUP, 0, 0),
                lambda: zombie.add(partition),
            ):
                try:
                    await attempt()
                except TailraceError:
                    continue
                raise AssertionError("a producer that was fenced could write")

        # A batch of this epoch may be repeated if it was stored, and must be refused if not.
        zombie._sequences[partition] = 1_000
        self.go(write(), None)

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(TIMEOUT_MS // 2 + 1)

        async def abort() -> None:
            await self.broker.transactions.abort_overdue()

        self.go(abort(), None)

    @precondition(lambda self: not self.gated)
    @rule()
    def stall(self) -> None:
        """Hold commits from now on: they are sequenced and not durable."""
        self.store.close_gate()
        self.gated = True

    @precondition(lambda self: self.gated)
    @rule(count=st.integers(1, 4))
    def settle_some(self, count: int) -> None:
        self.store.settle(count)
        self.turn()

    @precondition(lambda self: self.gated)
    @rule()
    def go_on(self) -> None:
        self.gated = False
        self.store.open_gate()
        self.finish()

    @precondition(lambda self: self.gated)
    @rule()
    def fail(self) -> None:
        self.store.fail()
        self.turn()

    @rule(settled=st.integers(0, 3))
    def crash(self, settled: int) -> None:
        """Crash and restart: some commits in flight are durable, and nobody gets a response."""
        self.store.settle(settled)
        self.store.in_flight.clear()
        ends = {partition: self.store.bounds(partition).end for partition in self.store.partitions()}
        self.store._gated.reset(ends, self.store.end_cursor())
        for task in self.tasks:
            task.cancel()
        self.turn()
        self.close_broker()
        self.gated = False
        self.store.open_gate()
        self.open_broker()
        for client in self.clients.values():
            client.producer.broker = self.broker
            if client.pending and client.must_end is None:
                # It can't know whether its records were stored, and does not risk to store them twice.
                client.broken = True
            client.pending = 0

    @invariant()
    def readers_see_what_the_model_says(self) -> None:
        if not self.clients:
            return
        for partition in range(PARTITIONS):
            stable, log, seen = self.loop.run_until_complete(self.read(partition))
            assert stable >= self.stable[partition]
            assert seen[: len(self.seen[partition])] == self.seen[partition]
            self.stable[partition], self.seen[partition] = stable, seen
            shown = set(seen)
            for value in (value for offset, value in log if offset < stable):
                self.check(value.decode().split("/")[0], shown=value in shown)
            assert all(offset < stable for offset, value in log if value in shown)

    @precondition(lambda self: not self.gated)
    @invariant()
    def the_offset_is_that_of_the_last_committed_transaction(self) -> None:
        if self.clients and not self.lost.intersection(self.offsets) and self.committed_offset is not None:
            committed = self.broker.offsets.committed(GROUP, TOPIC, 0)
            assert (-1 if committed is None else committed.offset) == self.committed_offset

    def teardown(self) -> None:
        if self.clients:
            self.store.open_gate()
            self.finish()
            for name in list(self.clients):
                self.gated = False
                self.clients[name].pending = 0
                self.take_over(name)
            self.readers_see_what_the_model_says()
            for partition in range(PARTITIONS):
                assert self.stable[partition] == bounds(self.broker, partition).end
        self.close_broker()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def check(self, transaction: str, *, shown: bool) -> None:
        """Check that below the last stable offset the outcome of each transaction is known and the same in all partitions."""
        if transaction == "plain":
            assert shown
        elif self.outcomes[transaction] is None:
            # Its end has taken effect and got no response yet.
            assert transaction in self.lost or not shown
            self.outcomes[transaction] = shown
        else:
            assert shown == self.outcomes[transaction], (transaction, shown)

    async def read(self, partition: int) -> tuple[int, list[tuple[int, bytes]], list[bytes]]:
        everything = await fetched(self.broker, partition, isolation=Isolation.READ_UNCOMMITTED)
        log = [
            (record.offset, record.value)
            for batch in everything.batches
            if not read_header(batch).is_control
            for record in decode_batch(batch)
        ]
        answer = await fetched(self.broker, partition)
        seen = [record.value for batch in committed_batches(answer.batches, answer.aborted) for record in decode_batch(batch)]
        return answer.last_stable_offset, log, seen

    def new_transaction(self) -> str:
        self.count += 1
        name = f"t{self.count}"
        self.outcomes[name] = None
        return name

    def leave(self, client: Client) -> None:
        """Return whether the client was fenced, or will never end its transaction."""
        transaction = client.transaction
        if transaction is not None and transaction not in self.lost:
            self.settle_fate(transaction, False)

    def settle_fate(self, transaction: str, committed: bool) -> None:
        assert self.outcomes[transaction] in (None, committed), transaction
        self.outcomes[transaction] = committed

    def go(self, work: Coroutine[Any, Any, None], client: Client | None) -> None:
        async def run() -> None:
            with suppress(TailraceError):
                await work
            if client is not None:
                client.pending -= 1

        if client is not None:
            client.pending += 1
        task = self.loop.create_task(run())
        self.tasks.add(task)
        if self.gated:
            self.turn()
        else:
            self.finish()

    def finish(self) -> None:
        if self.tasks:
            self.loop.run_until_complete(asyncio.wait_for(asyncio.gather(*self.tasks), PATIENCE_SECONDS))
            self.tasks.clear()

    def turn(self) -> None:
        async def turns() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.discard(task)
            if not task.cancelled():
                task.result()

    def open_broker(self) -> None:
        self.broker = Broker(self.store, self.clock, settings=NEVER)
        self.loop.run_until_complete(self.broker.start())

    def close_broker(self) -> None:
        async def close() -> None:
            await self.broker.jobs.close()
            self.broker.groups.close()
            self.broker.threads.close()

        self.loop.run_until_complete(close())


TransactionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_transactions = TransactionMachine.TestCase
