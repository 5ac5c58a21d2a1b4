"""What became of the latest deliveries, by the tokens of their receipts.

An answer may be lost on its way, and the consumer sends the same receipt again. What was said by it before is remembered here,
so that the second time is answered like the first. Only so many of the newest deliveries are remembered, one byte each, and
none over a restart: which receipts counted is not stored, only which records are done.
"""

from enum import IntEnum


class Fate(IntEnum):
    OPEN = 0
    """Nothing was said yet, or it is not remembered."""
    ACKNOWLEDGED = 1
    RELEASED = 2


class Fates:
    def __init__(self, first_token: int, remembered: int) -> None:
        self._first = self._next = first_token
        self._fates = bytearray(remembered)

    def new_token(self) -> int:
        """A token that no delivery had before. What was remembered in its place is forgotten."""
        token = self._next
        self._next += 1
        self._fates[token % len(self._fates)] = Fate.OPEN
        return token

    def __getitem__(self, token: int) -> Fate:
        return Fate(self._fates[token % len(self._fates)]) if self._remembers(token) else Fate.OPEN

    def __setitem__(self, token: int, fate: Fate) -> None:
        if self._remembers(token):
            self._fates[token % len(self._fates)] = fate

    def _remembers(self, token: int) -> bool:
        return max(self._first, self._next - len(self._fates)) <= token < self._next
