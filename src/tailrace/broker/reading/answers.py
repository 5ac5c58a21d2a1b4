"""Bounds the memory of answers to readers: each answer, and all of them together.

A few stored bytes may decode to a thousand times as many, so a reader reserves memory before it decodes. The first batch of an
answer waits for memory, in order of arrival, for a bounded time. Further batches are only decoded if memory is available at
once: no answer waits while it holds memory, so there is no deadlock, and under pressure answers become small. Memory is held
until the answer is sent or dropped.
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
    """The memory of all answers."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0
        self.refused = 0
        """Answers that were rejected because no memory was available in time."""
        self.skipped = 0
        """Records in batches that can't be decoded and were skipped."""

    @property
    def waiting(self) -> int:
        """Answers that wait for memory."""
        return len(self._waiting)

    def answer(self, *, max_bytes: int | None = None, skips_corrupt: bool = False) -> "ReadAnswer":
        """Return a new answer. The caller closes it when it is sent or dropped."""
        return ReadAnswer(self, self._limits.answer_bytes if max_bytes is None else max_bytes, skips_corrupt)

    def held(self, answer: "ReadAnswer | None") -> "AbstractContextManager[ReadAnswer]":
        """Return a context with this answer, or with a new one that is closed at the end, for reads that are not sent."""
        return self.answer() if answer is None else nullcontext(answer)

    def try_take(self, size: int) -> bool:
        """Take memory if it is available and no one waits for it. Return whether it was taken."""
        if self._waiting or not self._is_available(size):
            return False
        self.held_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Wait for memory, in order of arrival. A request for more than the bound succeeds when nothing else is held."""
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
                self._wake_waiting()
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise OverloadedError(
                    f"answers to other readers hold {self.held_bytes} bytes, as many as answers_bytes allows, and no memory"
                    f" was available for this one within {self._limits.answer_wait_ms} ms; try again after a pause"
                ) from None
            raise

    def give_back(self, size: int) -> None:
        """Return memory, and let those in who wait for it."""
        self.held_bytes -= size
        self._wake_waiting()

    def _is_available(self, size: int) -> bool:
        return not self.held_bytes or self.held_bytes + size <= self._limits.answers_bytes

    def _wake_waiting(self) -> None:
        while self._waiting and self._is_available(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            self.held_bytes += size
            turn.set_result(None)


class ReadAnswer:
    """One answer while it is built and sent: the memory that it holds, and how to treat batches that can't be decoded."""

    __slots__ = ("_held", "_max_bytes", "_memory", "corrupt", "is_cut", "skips_corrupt", "used")

    def __init__(self, memory: AnswerMemory, max_bytes: int, skips_corrupt: bool) -> None:
        self._memory = memory
        self._max_bytes = max_bytes
        self._held = 0
        self.used = 0
        """Bytes of its content."""
        self.is_cut = False
        """Whether something was left out because there was no memory for it."""
        self.skips_corrupt = skips_corrupt
        """Whether batches that can't be decoded are skipped; else the first of them ends the read, or is an error."""
        self.corrupt: list[CorruptBatch] = []
        """The batches that can't be decoded: those that were skipped, or the one that ended the read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def until_sent(self) -> Iterator[Self]:
        """Close the answer if the block fails. Otherwise the sender closes it."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    @property
    def is_pressed(self) -> bool:
        """Whether other answers wait for memory."""
        return self._memory.waiting > 0

    @property
    def left(self) -> int:
        """Bytes that may still be added."""
        return max(0, self._max_bytes - self.used)

    def try_reserve(self, size: int) -> bool:
        """Reserve memory for `size` more bytes if it is available at once and the answer is not full."""
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
        """Wait for memory for `size` bytes, for an answer that is still empty. Raises `OverloadedError`."""
        self.trim()
        missing = self.used + size - self._held
        if missing > 0:
            await self._memory.take(missing)
            self._held += missing
        self.is_cut = False

    def keep(self, size: int) -> None:
        """Count `size` bytes of content for which memory was reserved."""
        self.used += size

    def keep_from_thread(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        """Count `size` bytes of content, and wait for memory if more is needed. Called in a thread.

        Raises `OverloadedError`.
        """
        self.used += size
        if self.used > self._held:
            asyncio.run_coroutine_threadsafe(self._grow(max(_STEP_BYTES, self.used - self._held)), loop).result()

    async def _grow(self, size: int) -> None:
        await self._memory.take(size)
        self._held += size

    def forget(self, used: int) -> None:
        """Reduce the content to `used` bytes: what came after them was dropped."""
        self.used = used
        self.is_cut = False
        self.trim()

    def note(self, batch: CorruptBatch) -> None:
        """Record a batch that can't be decoded."""
        self.corrupt.append(batch)
        if self.skips_corrupt:
            self._memory.skipped += batch.last_offset - batch.first_offset + 1

    def trim(self) -> None:
        """Return the memory that was reserved and not used."""
        if self._held > self.used:
            self._memory.give_back(self._held - self.used)
            self._held = self.used

    def resize(self, size: int) -> None:
        """Change the size of the content to that of its encoding."""
        self._memory.give_back(self._held - size)
        self._held = self.used = size

    def close(self) -> None:
        """Return all memory. Calling it again does nothing."""
        self.used = 0
        self.trim()
