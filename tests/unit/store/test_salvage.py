"""Salvage: every record that can be read keeps its offset in the new folder, and all others are named."""

import asyncio
import random
import re
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tailrace.broker.broker import Broker
from tailrace.log.fsck import run_fsck
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.model.errors import CorruptionError, TailraceError
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import KIB
from tailrace.model.record import Message, RawBatch
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.salvage import Omission, SalvageResult, salvage
from tests.support.broken_batches import BROKEN, CODECS, good_batch
from tests.support.brokers import append_unchecked, options, running_broker
from tests.support.folders import frames_of, segment_files

SMALL_SEGMENTS = LogOptions(segment_bytes=16 * KIB)
UNREADABLE = [
    kind
    for kind in BROKEN
    # The store itself refuses a batch without records; the others can be stored, though not every reader can read them.
    if kind not in ("no records claimed", "negative number of records", "control batch", "decompression bomb")
    and kind != "timestamp far ahead in a record alone"
]
Work = Callable[[Broker], Coroutine[Any, Any, None]]
Values = dict[str, dict[int, bytes | None]]
"""For each partition (`name[0]`), the value at each offset."""


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "LOCK"}


async def values_of(broker: Broker, *, without: str = "") -> Values:
    found: Values = {}
    for live in broker.topics:
        for partition in live.partitions:
            name = f"{live.topic.name}[{partition.number}]"
            values: dict[int, bytes | None] = {}
            at, end = broker.positions.bounds(live.topic.name, partition.number)
            while at < end and name != without:
                read = await broker.committed_reader.read(live.topic.name, partition.number, at, max_records=1_000)
                values |= {record.offset: record.value for record in read.records}
                at = read.next_offset
            found[name] = values
    return found


def opened(folder: Path, *, work: Work | None = None, segments: LogOptions = DEFAULT_OPTIONS, without: str = "") -> Values:
    """Write to the folder and return its contents."""

    async def run() -> Values:
        store = EmbeddedStore.open(folder, durability="relaxed", options=segments)
        try:
            async with running_broker(store) as broker:
                if work is not None:
                    await work(broker)
                return await values_of(broker, without=without)
        finally:
            store.close()

    return asyncio.run(run())


async def fill(broker: Broker) -> None:
    await broker.topics.create("orders", 2)
    await broker.topics.create("gone")
    await broker.topics.create("payments", options=options(dedup="id"))
    for number in range(60):
        batch = good_batch(list(CODECS.values())[number % 5], [b"%d.%d " % (number, each) * 40 for each in range(3)])
        (outcome,) = await broker.appender.append([RawBatch("orders", number % 2, batch)])
        assert not isinstance(outcome, TailraceError)
        await broker.publisher.publish(
            [Message("payments", b"%d" % number, message_id=f"{number}"), Message("gone", b"x" * 100)]
        )
    await broker.offsets.commit("readers", [OffsetCommit("orders", 0, Offset(7)), OffsetCommit("payments", 0, Offset(3))])
    await broker.retention.delete_before("orders", 0, Offset(10))
    await broker.topics.delete("gone")


def rescue(source: Path, target: Path) -> tuple[SalvageResult, list[Omission]]:
    left_out: list[Omission] = []
    before = contents(source)
    done = salvage(source, target, left_out.append, lambda *_: None)
    assert contents(source) == before, "the source is only read"
    assert run_fsck(target).findings == []
    return done, left_out


def named_offsets(left_out: list[Omission]) -> dict[str, set[int]]:
    """Return the offsets that are reported as lost, by partition."""
    found: dict[str, set[int]] = {}
    for lost in left_out:
        named = re.match(r"partition (\d+) of '(.+)', offsets (\d+) to (\d+)$", lost.what)
        if named is not None:
            number, name, first, last = named.groups()
            found.setdefault(f"{name}[{number}]", set()).update(range(int(first), int(last) + 1))
    return found


@pytest.mark.parametrize("segments", [DEFAULT_OPTIONS, SMALL_SEGMENTS], ids=["one segment", "many segments"])
def test_everything_in_a_good_folder_is_salvaged(tmp_path: Path, segments: LogOptions) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    values = opened(source, work=fill, segments=segments)
    done, left_out = rescue(source, target)
    assert left_out == []
    assert done.lost_records == 0
    assert done.first_cursor >= 60 * 5

    async def look(broker: Broker) -> None:
        committed = {(each.topic, each.offset) for each in broker.offsets.committed_by("readers")}
        assert committed == {("orders", 7), ("payments", 3)}
        assert broker.positions.bounds("orders", 0) == (10, 90)
        # A record from before the damage is still a duplicate, and the next record gets the next offset.
        again, new = await broker.publisher.publish([Message("payments", b"1", message_id="1"), Message("payments", b"new")])
        assert (again.duplicate, again.offset, new.offset) == (True, 1, 60)
        assert new.cursor is not None
        assert new.cursor >= done.first_cursor
        scanned = broker.store.scan(Cursor(0), 1 << 30)
        assert scanned.batches

    found = opened(target, work=look)
    assert found.pop("payments[0]").pop(60) == b"new"
    values.pop("payments[0]")
    assert found == values


@pytest.mark.parametrize("kind", UNREADABLE)
def test_batches_whose_records_are_bad_are_named_by_fsck_and_left_out(tmp_path: Path, kind: str) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    broken = BROKEN[kind]

    async def work(broker: Broker) -> None:
        await fill(broker)
        for codec in broken.codecs:
            await append_unchecked(broker, RawBatch("orders", 1, broken.build(codec)))
            await broker.appender.append([RawBatch("orders", 1, good_batch(0, [b"after"]))])

    before = opened(source, work=work, without="orders[1]")
    (segment,) = segment_files(source)
    findings = run_fsck(source).findings
    assert len(findings) == len(broken.codecs)
    for finding in findings:
        assert finding.where.startswith(f"{segment.name}, position ")
        assert finding.what.startswith("partition 1 of 'orders', offsets ")
    done, left_out = rescue(source, target)
    assert len(left_out) == len(broken.codecs)
    assert all(lost.size for lost in left_out)
    lost = named_offsets(left_out)["orders[1]"]
    assert len(lost) == done.lost_records
    found = opened(target)
    assert found["orders[0]"] == before["orders[0]"]
    rest = found["orders[1]"]
    assert set(rest) | lost == set(range(max(rest) + 1))
    assert [value for offset, value in sorted(rest.items()) if offset >= 90] == [b"after"] * len(broken.codecs)


@pytest.mark.parametrize("is_checkpointed", [True, False], ids=["checkpointed", "not checkpointed"])
@pytest.mark.parametrize("segments", [DEFAULT_OPTIONS, SMALL_SEGMENTS], ids=["one segment", "many segments"])
@pytest.mark.parametrize("seed", range(6))
def test_after_any_damage_kept_records_are_right_and_lost_ones_are_named(
    tmp_path: Path, seed: int, segments: LogOptions, is_checkpointed: bool
) -> None:
    chance = random.Random(seed)
    source, target = tmp_path / "source", tmp_path / "target"
    values = opened(source, work=fill, segments=segments)
    if not is_checkpointed:
        shutil.rmtree(source / "state")
        (source / "state").mkdir()
    # The first frames create the topics, which nothing else records without a checkpoint.
    spared = sum(frame.size for frame in frames_of(segment_files(source)[0])[:8])
    for _ in range(4):
        segment = chance.choice(segment_files(source))
        data = bytearray(segment.read_bytes())
        at = chance.randrange(64 + spared, len(data)) if segment == segment_files(source)[0] else chance.randrange(len(data))
        size = chance.choice([1, 1, 8, 500])
        data[at : at + size] = chance.randbytes(len(data[at : at + size]))
        segment.write_bytes(data)
    _, left_out = rescue(source, target)
    assert left_out
    found = opened(target)
    named = named_offsets(left_out)
    assert {name for name in found if not name.startswith("gone")} == {"orders[0]", "orders[1]", "payments[0]"}
    for name in ("orders[0]", "orders[1]", "payments[0]"):
        for offset, value in values[name].items():
            if offset in found[name]:
                assert found[name][offset] == value
            elif is_checkpointed:
                assert offset in named[name], f"offset {offset} of {name} is gone without a word"
            else:
                # Without a checkpoint the end of a partition is unknown, but the lost bytes are named.
                assert offset in named.get(name, ()) or offset > max(found[name], default=-1)


def test_a_lost_end_is_filled_so_that_no_offset_is_assigned_twice(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    values = opened(source, work=fill)
    (segment,) = segment_files(source)
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    _, left_out = rescue(source, target)

    async def go_on(broker: Broker) -> None:
        (published,) = await broker.publisher.publish([Message("payments", b"next")])
        assert published.offset == 60

    found = opened(target, work=go_on)
    lost = named_offsets(left_out)
    for name in values:
        assert set(values[name]) - set(found[name]) == lost[name]


def test_what_can_not_be_salvaged_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    opened(source, work=fill)
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    for target in (full, full / "something", source / "inside"):
        with pytest.raises(TailraceError, match=r"not an empty folder|must not be changed"):
            rescue(source, target)
    with pytest.raises(TailraceError, match="does not exist"):
        rescue(tmp_path / "nowhere", tmp_path / "target")
    shutil.rmtree(source / "state")
    (source / "state").mkdir()
    (segment,) = segment_files(source)
    segment.rename(segment.with_name(segment.name.replace("-000000", "-000001")))
    with pytest.raises(CorruptionError, match="its topics are unknown"):
        salvage(source, tmp_path / "target", lambda _: None, lambda *_: None)
    assert not (tmp_path / "target").exists()


async def fill_compacted(broker: Broker) -> None:
    await broker.topics.create("compacted", options=options(cleanup_policy="compact"))
    for number in range(200):
        publish = [Message("compacted", b"%d" % (number + each) * 50, b"key %d" % (number % 7)) for each in range(3)]
        await broker.publisher.publish(publish)
    assert await broker.compaction.run_once() > 100


def test_what_a_compaction_has_removed_is_not_lost(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    values = opened(source, work=fill_compacted, segments=SMALL_SEGMENTS)
    assert len(values["compacted[0]"]) < 300
    done, left_out = rescue(source, target)
    assert (left_out, done.lost_records) == ([], 0)
    assert opened(target) == values
