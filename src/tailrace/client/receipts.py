"""What is to be said by receipts and was not sent yet: gathered to requests, and bounded."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from tailrace.client.queue_messages import Refused, Word
from tailrace.model.errors import LateReceiptError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS

T = TypeVar("T")

_MOST_WAITING = 20_000
MOST_AT_ONCE = DEFAULT_LIMITS.queue_batch
"""Receipts of one request."""


class Saying(NamedTuple, Generic[T]):
    """One call of the user's: what is said, by which receipts, and what waits for the outcome."""

    word: Word
    receipts: Sequence[str]
    outcome: T


class ReceiptBox(Generic[T]):
    """Sayings in the order in which they came."""

    linger_seconds = 0.0

    def __init__(self) -> None:
        self._waiting: deque[Saying[T]] = deque()
        self._receipts = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, saying: Saying[T]) -> bool:
        """One saying always has, however many receipts it has."""
        return self._receipts + len(saying.receipts) <= _MOST_WAITING or not self._waiting

    def put(self, saying: Saying[T]) -> None:
        self._waiting.append(saying)
        self._receipts += len(saying.receipts)

    def take(self) -> list[Saying[T]]:
        """Those that go into the next request: of one word, and at least one of them."""
        taken: list[Saying[T]] = []
        receipts = 0
        while self._waiting:
            saying = self._waiting[0]
            receipts += len(saying.receipts)
            if taken and (saying.word != taken[0].word or receipts > MOST_AT_ONCE):
                break
            taken.append(self._waiting.popleft())
            self._receipts -= len(saying.receipts)
        return taken


def error_of_refusals(refused: Sequence[Refused], unknown: TailraceError | None) -> TailraceError:
    """`unknown`: an answer was lost before. If a record is done, nobody can say then whether it was by this receipt."""
    if unknown is not None and any(each.is_done for each in refused):
        return unknown
    first = refused[0].detail
    told = first if len(refused) == 1 else f"{len(refused)} receipts do not count; the first: {first}"
    return LateReceiptError(told, refused)
