"""Dedup windows against a model: a plain dictionary of what was seen when."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker import keys
from tailrace.model.limits import Limits
from tailrace.model.record import MESSAGE_ID_HEADER, Message, RawBatch, Record
from tailrace.model.topic import DedupMode
from tailrace.store.memory import MemoryStore
from tailrace.wire.records import encode_batch
from tests.support.brokers import append, options, running_broker, values_in
from tests.support.clocks import ManualClock

WINDOW_SECONDS = 10

names = st.integers(0, 7)
publish = st.tuples(st.just("publish"), st.lists(names, min_size=1, max_size=5))
batch = st.tuples(st.just("append"), st.lists(names, min_size=1, max_size=5))
wait = st.tuples(st.just("wait"), st.lists(st.integers(1, 12_000), min_size=1, max_size=1))
nothing: st.SearchStrategy[list[int]] = st.just([])
clean = st.tuples(st.just("clean"), nothing)
restart = st.tuples(st.just("restart"), nothing)
steps = st.lists(st.one_of(publish, publish, batch, batch, wait, clean, restart), max_size=30)


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from(["id", "content"]))
def test_windows_equal_the_model(script: list[tuple[str, list[int]]], by: DedupMode) -> None:
    asyncio.run(play(script, by, Limits()))


@settings(max_examples=60, deadline=None)
@given(steps)
def test_a_bounded_window_forgets_but_never_invents(script: list[tuple[str, list[int]]]) -> None:
    asyncio.run(play(script, "id", Limits(dedup_entries=3)))


async def play(script: list[tuple[str, list[int]]], by: DedupMode, limits: Limits) -> None:
    store = MemoryStore()
    clock = ManualClock()
    exact = limits.dedup_entries > len(range(8))
    seen: dict[int, tuple[int, int]] = {}
    """By name: when it expires, and the offset of the first one."""
    written: list[bytes] = []
    context = running_broker(store, clock, limits)
    broker = await context.__aenter__()
    topic = await broker.topics.create("t", options=options(dedup=by, dedup_window_seconds=WINDOW_SECONDS))
    for step, numbers in script:
        now = clock.now_ms()
        if step == "publish":
            published = await broker.publisher.publish(
                [Message("t", b"%d" % number, message_id=f"{number}") for number in numbers]
            )
            for number, answer in zip(numbers, published, strict=True):
                known = number in seen and seen[number][0] > now
                if exact:
                    assert answer.duplicate == known
                assert not answer.duplicate or known
                if answer.duplicate:
                    assert answer.offset == seen[number][1]
                else:
                    assert answer.offset == len(written)
                    seen[number] = now + WINDOW_SECONDS * 1000, len(written)
                    written.append(b"%d" % number)
        elif step == "append":
            records = [Record(None, b"%d" % number, [(MESSAGE_ID_HEADER, b"%d" % number)], now) for number in numbers]
            appended = await append(broker, RawBatch("t", 0, encode_batch(records)))
            if exact:
                before = len(written)
                for number in numbers:
                    if number not in seen or seen[number][0] <= now:
                        seen[number] = now + WINDOW_SECONDS * 1000, len(written)
                        written.append(b"%d" % number)
                assert appended.duplicates == len(numbers) - (len(written) - before)
                # What the sender is told of each record is where it is, or nothing at all.
                told = [appended.base_offset + place for place in range(len(numbers))]
                offsets = [seen[number][1] for number in numbers]
                in_a_row = offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                assert told == offsets if in_a_row else max(told) < 0
            else:
                for value in (await values_in(broker, "t"))[len(written) :]:
                    seen[int(value or b"")] = now + WINDOW_SECONDS * 1000, len(written)
                    written.append(value or b"")
        elif step == "wait":
            clock.advance(numbers[0])
        elif step == "clean":
            await broker.dedup.clean()
            if exact:
                assert len(store.range(keys.dedup_expiries(topic.id))) == sum(at > now for at, _ in seen.values())
        else:
            await context.__aexit__(None, None, None)
            context = running_broker(store, clock, limits)
            broker = await context.__aenter__()
        entries = len(store.range(keys.dedup_entry_key(topic.id, b"")))
        assert entries == len(store.range(keys.dedup_expiries(topic.id)))
        assert entries == int.from_bytes(store.get(keys.dedup_count_key(topic.id)) or b"")
        assert entries <= max(limits.dedup_entries, 5)
    assert await values_in(broker, "t") == written
    await context.__aexit__(None, None, None)
