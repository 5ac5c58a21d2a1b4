"""Memory for what readers are answered, with a bound for each answer and one for all of them together.

A few stored bytes may decode to a thousand times as many, so a reader asks for room before it decodes. The first batch of an
answer waits for its turn, in order, for a bounded time. What else an answer could hold is only decoded if there is room at
once: nobody waits for room while it holds some, so nobody waits for ever, and under pressure answers become small. Room is
held until the answer is sent or dropped.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

from tailrace.model.errors import OverloadedError
from tailrace.model.fetch import CorruptBatch
from tailrace.model.limits import MIB, Limits

_STEP_BYTES = MIB


class AnswerMemory:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0
        self.refused = 0
        """Readers that were told to come again."""
        self.skipped = 0
        """Records in batches that can't be decoded and that readers went without."""

    @property
    def waiting(self) -> int:
        """Readers that wait for room."""
        return len(self._waiting)

    def answer(self, *, max_bytes: int | None = None, skips_corrupt: bool = False) -> "ReadAnswer":
        """To be closed by whoever asked for it, when it is sent or dropped."""
        return ReadAnswer(self, self._limits.answer_bytes if max_bytes is None else max_bytes, skips_corrupt)

    def held(self, answer: "ReadAnswer | None") -> "AbstractContextManager[ReadAnswer]":
        """This answer; or one that gives its room back at the end of the block, for what is read and not sent."""
        return self.answer() if answer is None else nullcontext(answer)

    def try_take(self, size: int) -> bool:
        """Take room if nobody waits for it and there is some."""
        if self._waiting or not self._has_room(size):
            return False
        self.held_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Take room in turn. One that asks for more than there is gets it when it is the only one."""
        if self.try_take(size):
            return
        turn = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._limits.answer_wait_ms / 1000)
        except BaseException as error:
            if turn.done():
                self.give_back(size)
            else:
                self._waiting.remove(entry)
                self._let_in()
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise OverloadedError(
                    f"answers to other readers hold {self.held_bytes} bytes, as many as answers_bytes allows, and there was no"
                    f" room for this one within {self._limits.answer_wait_ms} ms; try again after a pause"
                ) from None
            raise

    def give_back(self, size: int) -> None:
        self.held_bytes -= size
        self._let_in()

    def _has_room(self, size: int) -> bool:
        return not self.held_bytes or self.held_bytes + size <= self._limits.answers_bytes

    def _let_in(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            self.held_bytes += size
            turn.set_result(None)


class ReadAnswer:
    """One answer while it is made and sent: the room that it holds, and what to do about batches that can't be decoded."""

    __slots__ = ("_held", "_max_bytes", "_memory", "corrupt", "is_cut", "skips_corrupt", "used")

    def __init__(self, memory: AnswerMemory, max_bytes: int, skips_corrupt: bool) -> None:
        self._memory = memory
        self._max_bytes = max_bytes
        self._held = 0
        self.used = 0
        """Bytes that are in it."""
        self.is_cut = False
        """Whether something was left out for want of room."""
        self.skips_corrupt = skips_corrupt
        """Whether batches that can't be decoded are left out; else the first of them ends what is read, or is an error."""
        self.corrupt: list[CorruptBatch] = []
        """Such batches: those that were left out, or the ones that are in the way."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def until_sent(self) -> Iterator[Self]:
        """Close it if the block fails; else whoever sends it does."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    @property
    def is_pressed(self) -> bool:
        """Whether others wait for the room that it holds."""
        return self._memory.waiting > 0

    @property
    def left(self) -> int:
        """Bytes that may still come to it."""
        return max(0, self._max_bytes - self.used)

    def try_reserve(self, size: int) -> bool:
        """Have room for so many bytes more, if that is possible at once and the answer is not full."""
        if self.used and not self.left:
            self.is_cut = True
            return False
        missing = self.used + size - self._held
        if missing > 0:
            if not self._memory.try_take(missing):
                self.is_cut = True
                return False
            self._held += missing
        return True

    async def reserve(self, size: int) -> None:
        """The same for an answer that holds nothing yet, which waits. Raises `OverloadedError`."""
        self.trim()
        missing = self.used + size - self._held
        if missing > 0:
            await self._memory.take(missing)
            self._held += missing
        self.is_cut = False

    def keep(self, size: int) -> None:
        """So many bytes have come to it, for which there was room."""
        self.used += size

    def keep_from_thread(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        """Take room for so many bytes more, and keep them, in a thread that may wait. Raises `OverloadedError`."""
        self.used += size
        if self.used > self._held:
            asyncio.run_coroutine_threadsafe(self._grow(max(_STEP_BYTES, self.used - self._held)), loop).result()

    async def _grow(self, size: int) -> None:
        await self._memory.take(size)
        self._held += size

    def forget(self, used: int) -> None:
        """Only so many bytes are still in it; what came after them was looked at and dropped."""
        self.used = used
        self.is_cut = False
        self.trim()

    def note(self, batch: CorruptBatch) -> None:
        """Say in the answer that this batch can't be decoded."""
        self.corrupt.append(batch)
        if self.skips_corrupt:
            self._memory.skipped += batch.last_offset - batch.first_offset + 1

    def trim(self) -> None:
        """Give back what was reserved and not used."""
        if self._held > self.used:
            self._memory.give_back(self._held - self.used)
            self._held = self.used

    def resize(self, size: int) -> None:
        """It has become something else, of so many bytes: its encoding."""
        self._memory.give_back(self._held - size)
        self._held = self.used = size

    def close(self) -> None:
        """Calling it again does nothing."""
        self.used = 0
        self.trim()
