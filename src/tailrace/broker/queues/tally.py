"""How many records are open: of one queue, and of all queues together."""


class Tally:
    def __init__(self, whole: "Tally | None" = None) -> None:
        self._whole = whole
        self.records = 0

    def count(self, more: int) -> None:
        """So many more are open; fewer, if it is negative."""
        self.records += more
        if self._whole is not None:
            self._whole.count(more)
