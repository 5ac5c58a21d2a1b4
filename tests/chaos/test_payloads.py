"""The process dies or the power goes at any step of a payload: what was acknowledged is intact, and nothing is left behind."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tailrace.log.fsck import run_fsck
from tailrace.model.clock import SystemClock
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import Offset
from tailrace.model.killpoint import EXIT_CODE, PAYLOAD_KILLPOINTS
from tailrace.model.limits import MIB
from tailrace.model.record import Message, reference_to
from tailrace.store.embedded import EmbeddedStore
from tests.chaos.payload_writer import LIMITS, SHARED, TOPIC, content_of
from tests.support.brokers import bounds_of, running_broker, values_in
from tests.support.child import WriterProcess
from tests.support.frozen_writers import cut_while_writing
from tests.support.history import Event, Note
from tests.support.powercut import mounted, small_disk, why_no_mounts

MODULE = "tests.chaos.payload_writer"
STEPS = (*PAYLOAD_KILLPOINTS, "write.half", "answer.before")


def judge(folder: Path, events: Sequence[Event], *, may_lose_tail: bool = False) -> None:
    report = run_fsck(folder)
    assert not report.findings, report.findings
    asyncio.run(_judge(folder, events, may_lose_tail))
    assert not list(folder.glob("payloads/*.unfinished"))


async def _judge(folder: Path, events: Sequence[Event], may_lose_tail: bool) -> None:
    said = [event.text.split() for event in events if isinstance(event, Note)]
    done = {int(words[2]): words[1].encode() for words in said if words[0] == "done"}
    tried = {words[1].encode() for words in said if words[0] == "try"}
    store = EmbeddedStore.open(folder, limits=LIMITS)
    try:
        async with running_broker(store, SystemClock(), LIMITS) as broker:
            if broker.topics.find(TOPIC) is None:
                return
            values = await values_in(broker, TOPIC)
            start, end = bounds_of(broker, TOPIC)
            found = dict(enumerate(values, start))
            for offset, mark in done.items():
                if may_lose_tail and offset >= end:
                    continue
                assert offset < start or found[offset] == content_of(mark), f"offset {offset}, acknowledged for {mark!r}"
            assert set(values) <= {content_of(mark) for mark in (*tried, SHARED)}
            for _ in range(2):
                await broker.payload_sweep.run_once()
            large = {value for value in values if value is not None and len(value) > LIMITS.payload_inline_bytes}
            assert set(store.payloads.digests()) == {reference_to(value).digest for value in large}
    finally:
        store.close()


@pytest.mark.parametrize("name", STEPS)
def test_payloads_survive_a_kill_at(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    events: list[Event] = []
    for run, (times, durability) in enumerate([(3, "fsync"), (8, "relaxed")], start=1):
        writer = WriterProcess(
            folder,
            *("--run", str(run), "--durability", durability, "--rounds", "30"),
            environment={"TAILRACE_KILLPOINT": f"{name}:{times}"},
            module=MODULE,
        )
        assert writer.wait() == EXIT_CODE, f"{name} was not passed {times} times; {writer.errors}"
        events += writer.events
        judge(folder, events)


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_payloads_survive_power_cuts(durability: str, tmp_path: Path, chaos_seed: int) -> None:
    """With `relaxed` the newest records may be lost; none that is left has lost its payload."""
    moments = random.Random(chaos_seed)
    # Longer than a relaxed store takes to sync, like the pause between two sweeps of a server.
    pause = "0.3" if durability == "relaxed" else "0"
    cuts = cut_while_writing(
        tmp_path,
        lambda folder: WriterProcess(folder, "--durability", durability, "--pause", pause, module=MODULE),
        lambda writer: writer.wait_for_note("open"),
        [moments.uniform(0.05, 0.7) for _ in range(3)],
    )
    for copy, events in cuts:
        with mounted(copy, tmp_path / copy.stem) as disk:
            judge(disk / "data", events, may_lose_tail=durability == "relaxed")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        yield disk


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
def test_a_disk_without_room_rejects_payloads_and_takes_them_again_when_there_is_room(disk: Path) -> None:
    asyncio.run(_fill_up(disk))
    assert not list(disk.glob("data/payloads/*.unfinished"))
    assert not run_fsck(disk / "data").findings


async def _fill_up(disk: Path) -> None:
    store = EmbeddedStore.open(disk / "data", limits=LIMITS)
    try:
        async with running_broker(store, SystemClock(), LIMITS) as broker:
            await broker.topics.create(TOPIC)
            taken: list[bytes] = []
            with pytest.raises(StorageFullError, match="too full for a payload"):
                for number in range(100):
                    value = b"%d" % number * 100_000
                    await broker.publisher.publish([Message(TOPIC, value)])
                    taken.append(value)
            assert await values_in(broker, TOPIC) == taken
            await broker.retention.delete_before(TOPIC, 0, Offset(len(taken)))
            for _ in range(2):
                await broker.payload_sweep.run_once()
            await broker.publisher.publish([Message(TOPIC, b"again" * 20_000)])
            assert await values_in(broker, TOPIC) == [b"again" * 20_000]
    finally:
        store.close()
