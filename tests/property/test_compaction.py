"""Any sequence of appends, transactions, compactions, trims, cleaner runs, reopenings and crashes leaves the last committed
record of each key below the clean end, and everything above it."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tailrace.log.fsck import run_fsck
from tailrace.model.commit import Append, Changes
from tailrace.model.compaction import CompactionRule, EndedTransaction
from tailrace.model.ids import Offset, PartitionId, ProducerId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.contract import Store
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.memory import MemoryStore
from tailrace.wire.compression import Compression
from tailrace.wire.control import TransactionMarker, encode_marker
from tests.support.batches import TIMESTAMP, append
from tests.support.compaction import Kept, compacted, fetched, keyed, scanned
from tests.support.folders import copy_as_killed
from tests.support.stores import SMALL_PIECES

TOPIC = TopicId(1)
HERE, OTHER = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
PRODUCERS = (7, 8)

keys = st.none() | st.integers(0, 6).map(lambda number: b"key %d" % number)
values = st.none() | st.integers(0, 300).map(lambda size: b"v" * size)
records = st.lists(st.tuples(keys, values), min_size=1, max_size=6)


class CompactionMachine(RuleBasedStateMachine):
    """Compacts one of two partitions, and holds it against the definition of compaction."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Kept] = []
        """All that were ever appended and not aborted."""
        self.open: dict[int, tuple[int, list[Kept]]] = {}
        """The transaction of each producer: its first offset and its records."""
        self.aborted: list[EndedTransaction] = []
        self.end = self.cursor = self.start = self.clean_end = self.expired_end = 0
        self.others = 0

    @initialize()
    def create(self) -> None:
        self.store.commit(Changes(creates=[(TOPIC, 2)]))

    def append(self, batch: Append) -> list[Kept]:
        receipt = self.store.commit(Changes(appends=[batch]))
        self.end, self.cursor = receipt.offsets[0] + batch.records, receipt.cursor + batch.records
        return [
            record._replace(cursor=receipt.cursor + record.offset - receipt.offsets[0])
            for record in fetched(self.store, HERE, receipt.offsets[0])
        ]

    @rule(records=records, codec=st.sampled_from(Compression))
    def write(self, records: list[tuple[bytes | None, bytes | None]], codec: int) -> None:
        self.records += self.append(keyed(HERE, *records, codec=codec))

    @rule(records=records, producer=st.sampled_from(PRODUCERS))
    def write_in_transaction(self, records: list[tuple[bytes | None, bytes | None]], producer: int) -> None:
        _, written = self.open.setdefault(producer, (self.end, []))
        written += self.append(keyed(HERE, *records, producer_id=producer, transactional=True))

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from(TransactionMarker))
    def end_transaction(self, producer: int, kind: TransactionMarker) -> None:
        if producer not in self.open:
            return
        first, written = self.open.pop(producer)
        marker = Offset(self.end)
        self.append(Append(HERE, encode_marker(kind, producer, 0, TIMESTAMP), 1, TIMESTAMP))
        if kind is TransactionMarker.ABORT:
            self.aborted.append(EndedTransaction(ProducerId(producer), Offset(first), marker))
        else:
            self.records = sorted(self.records + written)

    @rule(count=st.integers(1, 20))
    def write_elsewhere(self, count: int) -> None:
        for _ in range(count):
            self.others += 1
            self.store.commit(Changes(appends=[append(OTHER, b"%d" % self.others * 30)]))

    @rule(stop=st.integers(0, 200), expires=st.booleans(), rolls=st.booleans())
    def compact(self, stop: int, expires: bool, rolls: bool) -> None:
        stable = min((first for first, _ in self.open.values()), default=self.end)
        expired_end = self.clean_end if expires else self.expired_end
        rule = CompactionRule(
            HERE,
            Offset(self.clean_end),
            Offset(min(stop, stable)),
            Offset(expired_end),
            aborted=tuple(self.aborted),
            rolls=rolls,
        )
        (result,) = self.store.compact([rule])
        assert self.clean_end <= result.clean_end <= max(stable, self.clean_end)
        self.clean_end, self.expired_end = result.clean_end, expired_end

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        stable = min((first for first, _ in self.open.values()), default=self.end)
        self.start = data.draw(st.integers(self.start, max(self.start, stable)))
        self.store.commit(Changes(trims=[(HERE, Offset(self.start))]))

    def expected(self) -> list[Kept]:
        left = compacted(self.records, self.clean_end, self.expired_end)
        open_records = [record for _, written in self.open.values() for record in written]
        return [record for record in sorted(left + open_records) if record.offset >= self.start]

    def seen(self, found: list[Kept]) -> list[Kept]:
        """Leave out aborted records above the clean end, which are not removed yet, and those below the start."""
        known = {record.offset for record in self.records} | {
            record.offset for _, written in self.open.values() for record in written
        }
        return [each for each in found if each.offset >= self.start and (each.offset in known or not self.may_be_left(each))]

    def may_be_left(self, record: Kept) -> bool:
        return record.offset >= self.clean_end and any(
            each.first_offset <= record.offset < each.marker_offset for each in self.aborted
        )

    @invariant()
    def holds_what_the_definition_says(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.seen(fetched(self.store, HERE)) == self.expected()
        assert self.seen(scanned(self.store, HERE)) == self.expected()
        assert len(fetched(self.store, OTHER)) == self.others
        batches = self.store.fetch(HERE, self.store.bounds(HERE).start, 1 << 20).batches
        assert self.store.size(HERE) == sum(map(len, batches))

    def teardown(self) -> None:
        self.store.close()


class MemoryMachine(CompactionMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()


class EmbeddedMachine(CompactionMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.opened = 0
        self.open_store()

    def open_store(self) -> None:
        limits = Limits(tail_cache_bytes=4 * KIB, min_free_bytes=0)
        self.store = EmbeddedStore.open(self.folder / str(self.opened), options=SMALL_PIECES, limits=limits)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert not run_fsck(self.folder / str(self.opened)).findings
        self.open_store()

    @rule()
    def crash(self) -> None:
        self.opened += 1
        copy_as_killed(self.folder / str(self.opened - 1), self.folder / str(self.opened))
        self.store.close()
        assert not run_fsck(self.folder / str(self.opened)).findings
        self.open_store()

    @rule()
    def clean(self) -> None:
        assert isinstance(self.store, EmbeddedStore)
        self.store.clean()

    @rule()
    def checkpoint(self) -> None:
        assert isinstance(self.store, EmbeddedStore)
        self.store.checkpoint()

    def teardown(self) -> None:
        super().teardown()
        assert not run_fsck(self.folder / str(self.opened)).findings
        shutil.rmtree(self.folder)


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestEmbedded = EmbeddedMachine.TestCase
TestEmbedded.settings = settings(max_examples=25, stateful_step_count=50, deadline=None)
