"""Whatever happens around a cut-over, a topic takes a record exactly if a model of a few lines says so.

Commands fence, renew, give up, cut over and roll back; topics are deleted and created again; the disk is full; the server dies.
Records come by a fast path, a general one and a transaction.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.model.errors import CutOverTopicError, FencedTopicError, StorageFullError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Appended, Message
from tests.support.aio import TEST_SECONDS, turns
from tests.support.brokers import GatedStore, append, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.shadows import drafted

TOPICS = ("app.a", "app.b", "other")
SILENCE_SECONDS = 30
LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, shadow_fence_silence_seconds=SILENCE_SECONDS, shadow_fence_seconds=600)

WAYS = ("write", "publish", "transact")
ALLOWED = {
    "fence": ("copying", "fenced"),
    "give up": ("fenced", "copying"),
    "refuse": ("fenced", "refuse"),
    "forward": ("fenced", "forward"),
    "roll back": ("refuse forward", "copying"),
}
"""In which phase a command has an effect, and the phase behind it."""
ANYTHING = st.one_of(
    st.tuples(st.sampled_from((*WAYS, "create again")), st.sampled_from(TOPICS)),
    st.tuples(st.sampled_from((*ALLOWED, "renew", "restart", "wait", "define", "drop"))),
)


def operations(phase: str | None) -> st.SearchStrategy[tuple[str, ...]]:
    """Return what may happen next: often a command that has an effect, alone, on a full disk, or among records."""
    useful = [name for name, (allowed, _) in ALLOWED.items() if phase is not None and phase in allowed]
    if not useful:
        return st.just(("define",))
    command = st.sampled_from(useful)
    return st.one_of(
        ANYTHING,
        st.tuples(command),
        st.tuples(st.just("full disk"), command),
        st.tuples(st.just("race"), command, st.sampled_from(("settles", "fails"))),
    )


class Run:
    """A broker and the model of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = GatedStore(self.clock, LIMITS)
        self.phase: str | None = None
        """`None` if there is no shadow; after a cut-over `refuse` or `forward`."""
        self.fences = 0
        self.stack = AsyncExitStack()

    async def start(self) -> None:
        self.broker: Broker = await self.stack.enter_async_context(running_broker(self.store, self.clock, LIMITS))

    async def begin(self) -> None:
        await self.start()
        for name in TOPICS:
            await self.broker.topics.create(name)
        await self._define()

    async def step(self, name: str, *given: str) -> None:
        match name, *given:
            case (("write" | "publish" | "transact"), topic):
                await self._write(name, topic)
            case "create again", topic:
                await self.broker.topics.delete(topic)
                await self.broker.topics.create(topic)
            case "define", *_:
                await self._define()
            case "drop", *_:
                if self.phase is not None:
                    await self.broker.shadows.drop("prod", force=True)
                    self.phase = None
            case "restart", *_:
                await self.stack.aclose()
                self.stack = AsyncExitStack()
                await self.start()
            case "wait", *_:
                self.clock.advance(1000 * SILENCE_SECONDS + 2)
                # The timers of a manual clock do not fire by themselves.
                await self.broker.cut_overs.end_overdue()
                if self.phase == "fenced":
                    self.phase = "copying"
            case "full disk", command:
                await self._race(command, [], fails=True)
            case "race", command, outcome:
                await self._race(command, TOPICS, fails=outcome == "fails")
            case "renew", *_:
                if self.phase == "fenced":
                    self.broker.cut_overs.renew(self.broker.shadows.get("prod"), self.fences)
            case _:
                await self._command(name)

    async def _command(self, name: str) -> None:
        if self.phase is None:
            return
        before = self.broker.shadows.get("prod")
        allowed, after = ALLOWED[name]
        if self.phase in allowed:
            await self._asked(name)
            self.phase = after
            self.fences += name == "fence"
        else:
            # It is refused, or a repetition that changes nothing.
            await asyncio.gather(self._asked(name), return_exceptions=True)
            assert self.broker.shadows.get("prod") == before

    def _asked(self, name: str) -> Awaitable[Any]:
        cut_overs, shadow = self.broker.cut_overs, self.broker.shadows.get("prod")
        if name == "fence":
            return cut_overs.fence(shadow, "a test", "refuse")
        if name == "give up":
            return cut_overs.give_up(shadow, self.fences, None)
        if name == "roll back":
            return cut_overs.roll_back(shadow, None)
        return cut_overs.finish(shadow, "refuse" if name == "refuse" else "forward", self.fences)

    async def _race(self, command: str, topics: Sequence[str], *, fails: bool) -> None:
        """Let a command be decided between records for these topics, before any of them is durable. Then all are, or none."""
        before = {topic: self._end(topic) for topic in topics}
        self.store.close_gate()
        earlier = [asyncio.ensure_future(append(self.broker, raw(topic, 0, b"earlier"))) for topic in topics]
        await turns()
        asked = asyncio.ensure_future(self._asked(command))
        await turns()
        later = [asyncio.ensure_future(append(self.broker, raw(topic, 0, b"later"))) for topic in topics]
        await turns()
        if fails:
            self.store.fail()
        self.store.open_gate()
        done = await asyncio.gather(*earlier, asked, *later, return_exceptions=True)
        stored_before = [self._takes(topic) for topic in topics]
        if not fails:
            self.phase = ALLOWED[command][1]
            self.fences += command == "fence"
        # What opens a topic does so when it is durable, and what closes it does so at once.
        stored_behind = [takes and self._takes(topic) for takes, topic in zip(stored_before, topics, strict=True)]
        assert isinstance(done[len(topics)], StorageFullError) is fails
        if fails:
            assert not any(isinstance(outcome, Appended) for outcome in (*done[: len(topics)], *done[len(topics) + 1 :]))
            assert {topic: self._end(topic) for topic in topics} == before
            return
        assert [isinstance(outcome, Appended) for outcome in done[: len(topics)]] == stored_before
        assert [isinstance(outcome, Appended) for outcome in done[len(topics) + 1 :]] == stored_behind
        records = [one + another for one, another in zip(stored_before, stored_behind, strict=True)]
        assert [self._end(topic) - before[topic] for topic in topics] == records

    async def _write(self, how: str, topic: str) -> None:
        before = self._end(topic)
        try:
            if how == "publish":
                await self.broker.publisher.publish([Message("other", b"o"), Message(topic, b"v", b"k")])
            elif how == "transact":
                await append(self.broker, raw(topic, 0, b"v"), raw("other", 0, b"w"))
            else:
                await append(self.broker, raw(topic, 0, b"v"))
        except (FencedTopicError, CutOverTopicError) as error:
            assert not self._takes(topic)
            assert type(error) is (FencedTopicError if self.phase == "fenced" else CutOverTopicError)
            assert self._end(topic) == before
        else:
            assert self._takes(topic)
            assert self._end(topic) > before

    def _takes(self, topic: str) -> bool:
        """Return whether the topic takes records, by the model."""
        return not (topic.startswith("app.") and self.phase in ("fenced", "refuse"))

    async def _define(self) -> None:
        if self.phase is None:
            await self.broker.shadows.create(drafted())
            self.phase, self.fences = "copying", 0

    def _end(self, topic: str) -> int:
        return self.broker.store.bounds(self.broker.topics.get(topic).partition(0)).end

    def check(self) -> None:
        """Every topic has the fence that the phase says, also one that was created just now."""
        found = {live.topic.name: live.fence is None for live in self.broker.topics}
        assert found == {name: self._takes(name) for name in TOPICS}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_topic_takes_records_exactly_if_it_is_not_fenced(data: st.DataObject) -> None:
    async def play() -> None:
        async with asyncio.timeout(TEST_SECONDS):
            run = Run()
            await run.begin()
            for _ in range(data.draw(st.integers(5, 25))):
                await run.step(*data.draw(operations(run.phase)))
                run.check()
            await run.stack.aclose()

    asyncio.run(play())
