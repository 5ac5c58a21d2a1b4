"""Any sequence of commits, trims, drops, checkpoints, cleaner runs, reopenings and crashes leaves what the model says."""

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.log.fsck import run_fsck
from tailrace.model.commit import Append, Changes, Durability
from tailrace.model.errors import OffsetOutOfRangeError, SequencingError, TailraceError, UnknownPartitionError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store, StoreCommit
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.memory import MemoryStore
from tests.property.store_model import StoreModel
from tests.support.batches import append, append_timed
from tests.support.folders import copy_as_killed, segment_files
from tests.support.observed import observe
from tests.support.stores import SMALL_PIECES

keys = st.tuples(st.sampled_from([b"a/", b"a", b"b/", b"\xff"]), st.binary(max_size=2)).map(b"".join)
puts = st.lists(st.tuples(keys, st.none() | st.binary(max_size=40)), max_size=4)
prefixes = st.lists(st.sampled_from([b"a/", b"a", b"b/", b"\xff"]), max_size=1)
values = st.integers(0, 700).map(lambda size: bytes([size % 251]) * size)
records = st.lists(st.tuples(st.integers(0, 2_000), values), min_size=1, max_size=4)


class StoreMachine(RuleBasedStateMachine):
    """Drives a store and the model with the same commits and compares all that can be seen after each step."""

    store: Store
    read_bytes: ClassVar[int] = 1_500

    def __init__(self) -> None:
        super().__init__()
        self.model = StoreModel()
        self.topics: dict[TopicId, int] = {}
        self.topics_made = 0

    def commit(self, changes: Changes) -> None:
        receipt = self.store.commit(changes)
        assert (receipt.cursor, list(receipt.offsets)) == self.model.apply(changes)

    def pick(self, data: st.DataObject) -> PartitionId:
        return data.draw(st.sampled_from(sorted(self.model.ends)), label="partition")

    def appends(self, data: st.DataObject, most: int) -> list[Append]:
        return [append_timed(self.pick(data), data.draw(records)) for _ in range(data.draw(st.integers(1, most)))]

    @initialize(partitions=st.integers(1, 3))
    def first_topic(self, partitions: int) -> None:
        self.create(partitions)

    @precondition(lambda self: len(self.topics) < 4)
    @rule(partitions=st.integers(1, 3))
    def create(self, partitions: int) -> None:
        self.topics_made += 1
        topic = TopicId(self.topics_made)
        self.topics[topic] = partitions
        self.commit(Changes(creates=[(topic, partitions)], puts=[(b"a/topic", b"%d" % topic)]))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), more=st.integers(0, 2))
    def grow(self, data: st.DataObject, more: int) -> None:
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        self.topics[topic] += more
        new = PartitionId(topic, self.topics[topic] - 1)
        self.commit(Changes(creates=[(topic, self.topics[topic])], appends=[append(new, b"grown")]))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), puts=puts, prefixes=prefixes)
    def write(self, data: st.DataObject, puts: list[tuple[bytes, bytes | None]], prefixes: list[bytes]) -> None:
        self.commit(Changes(appends=self.appends(data, 4), drop_prefixes=prefixes, puts=puts))

    @rule(puts=puts, prefixes=prefixes)
    def change_state(self, puts: list[tuple[bytes, bytes | None]], prefixes: list[bytes]) -> None:
        self.commit(Changes(drop_prefixes=prefixes, puts=puts))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), count=st.integers(2, 12))
    def write_many_at_once(self, data: st.DataObject, count: int) -> None:
        answered: list[StoreCommit] = []
        sent = [Changes(appends=self.appends(data, 2), puts=[(b"b/%d" % number, b"")]) for number in range(count)]
        commits = [self.store.submit(changes, answered.append) for changes in sent]
        expected = [self.model.apply(changes) for changes in sent]
        self.store.commit(Changes())
        assert answered == commits
        assert [(commit.receipt.cursor, list(commit.receipt.offsets)) for commit in commits] == expected

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), also_write=st.booleans())
    def trim(self, data: st.DataObject, also_write: bool) -> None:
        partition = self.pick(data)
        start = data.draw(st.integers(0, self.model.ends[partition]), label="start")
        appends = self.appends(data, 2) if also_write else []
        self.commit(Changes(trims=[(partition, Offset(start))], appends=appends))

    @precondition(lambda self: self.topics)
    @rule()
    def trim_everything(self) -> None:
        self.commit(Changes(trims=[(partition, Offset(end)) for partition, end in self.model.ends.items()]))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), puts=puts)
    def drop(self, data: st.DataObject, puts: list[tuple[bytes, bytes | None]]) -> None:
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        del self.topics[topic]
        self.commit(Changes(drops=[topic], drop_prefixes=[b"a/"], puts=puts))

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def be_refused(self, data: st.DataObject) -> None:
        partition = self.pick(data)
        end = self.model.ends[partition]
        good = self.appends(data, 2)
        wrong: list[tuple[Changes, type[TailraceError]]] = [
            (Changes(appends=[*good, append(PartitionId(TopicId(999), 0), b"x")]), UnknownPartitionError),
            (Changes(appends=[append(partition, b"x", base_offset=end + 1), *good]), SequencingError),
            (Changes(trims=[(partition, Offset(end + 1))], appends=good), OffsetOutOfRangeError),
            (Changes(drops=[TopicId(999)], puts=[(b"a/", b"never")]), UnknownPartitionError),
        ]
        changes, error = data.draw(st.sampled_from(wrong))
        with pytest.raises(error):
            self.store.commit(changes)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), timestamp=st.integers(-1, 2_001))
    def find_by_time(self, data: st.DataObject, timestamp: int) -> None:
        partition = self.pick(data)
        assert self.store.batch_for_time(partition, timestamp) == self.model.first_at_or_after(partition, timestamp)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), keep_bytes=st.integers(0, 8_000))
    def find_by_size(self, data: st.DataObject, keep_bytes: int) -> None:
        partition = self.pick(data)
        assert self.store.batch_for_size(partition, keep_bytes) == self.model.last_that_leaves(partition, keep_bytes)

    @precondition(lambda self: self.model.cursor)
    @rule(data=st.data())
    def scan_from_anywhere(self, data: st.DataObject) -> None:
        cursor = data.draw(st.integers(0, self.model.cursor), label="cursor")
        batches, next_cursor = self.store.scan(Cursor(cursor), 1)
        expected = self.model.holding(cursor)
        if batches:
            assert expected is not None
            assert (batches[0].cursor, batches[0].partition) == (expected.cursor, expected.partition)
        else:
            assert next_cursor <= (expected.cursor if expected else self.model.cursor)

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        model = self.model
        seen = observe(self.store, self.read_bytes)
        assert seen.partitions == model.bounds()
        assert seen.fetched == {partition: model.records(partition) for partition in model.ends}
        assert [(batch.cursor, batch.partition, batch.records) for batch in seen.scanned] == [
            (batch.cursor, batch.partition, batch.records) for batch in model.log
        ]
        assert seen.end_cursor == model.cursor
        assert seen.next_offsets == model.ends
        assert seen.sizes == {partition: sum(batch.size for batch in model.batches(partition)) for partition in model.ends}
        assert seen.state == model.state
        assert list(seen.state) == sorted(model.state)
        stamps = [batch.hlc for batch in seen.scanned]
        assert stamps == sorted(stamps)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


class MemoryMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()


class EmbeddedMachine(StoreMachine):
    """The same on disk: with pieces so small that segments roll, checkpoints come due and the cleaner finds work."""

    durability: ClassVar[Durability] = "fsync"
    store: EmbeddedStore

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="tailrace-model-"))
        self.crashes = 0
        self.store = self.open()

    @property
    def folder(self) -> Path:
        return self.home / f"after-{self.crashes}"

    def open(self) -> EmbeddedStore:
        return EmbeddedStore.open(
            self.folder, durability=self.durability, limits=Limits(tail_cache_bytes=6_000), options=SMALL_PIECES
        )

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule()
    def clean(self) -> None:
        self.store.clean()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert run_fsck(self.folder).findings == []
        self.store = self.open()

    @rule(garbage=st.binary(max_size=80))
    def crash(self, garbage: bytes) -> None:
        """Go on with a copy of the folder as it is, behind whose last frame a torn write may stand."""
        copy = self.home / f"after-{self.crashes + 1}"
        copy_as_killed(self.folder, copy)
        self.store.close()
        shutil.rmtree(self.folder)
        self.crashes += 1
        with segment_files(self.folder)[-1].open("ab") as active:
            active.write(garbage)
        assert run_fsck(self.folder).findings == []
        self.store = self.open()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.home)


class RelaxedMachine(EmbeddedMachine):
    durability = "relaxed"


TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEmbeddedStore = EmbeddedMachine.TestCase
TestEmbeddedStore.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRelaxedEmbeddedStore = RelaxedMachine.TestCase
TestRelaxedEmbeddedStore.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
