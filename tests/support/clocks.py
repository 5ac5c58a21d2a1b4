"""A clock that stands still until a test moves it."""


class ManualClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._seconds = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
        self._seconds += milliseconds / 1000

    def step_back(self, milliseconds: int) -> None:
        """Only the wall clock can."""
        self._now_ms -= milliseconds
