"""An answer that is to come: its place among the others of its connection, from the request on."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.commit import Buffer

Reply = Sequence[Buffer] | None
"""The parts of an answer with its size before it, or nothing where the client expects no answer."""


class Pending:
    """Settled or failed once, by whoever makes the answer; the connection is told, unless it has given up."""

    __slots__ = ("error", "held", "is_given_up", "is_settled", "on_settled", "reply", "request_bytes", "task")

    def __init__(self, task: "asyncio.Task[Any] | None" = None) -> None:
        self.task = task
        """What makes the answer, if it ends with the connection."""
        self.reply: Reply = None
        self.held: ReadAnswer | None = None
        """The room that the answer takes until it is sent."""
        self.error: BaseException | None = None
        self.is_settled = False
        self.is_given_up = False
        self.on_settled: Callable[[Pending], None] | None = None
        self.request_bytes = 0

    def settle(self, reply: Reply) -> None:
        self.reply = reply
        self.is_settled = True
        if self.on_settled is not None:
            self.on_settled(self)

    def fail(self, error: BaseException) -> None:
        """There can be no answer: the connection ends."""
        self.error = error
        self.settle(None)

    def give_up(self) -> None:
        """Nobody is there any more to be answered."""
        self.is_given_up = True
        self.on_settled = None
        if self.task is not None:
            self.task.cancel()
