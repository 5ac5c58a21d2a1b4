"""What is closed at the end of a `with` block."""

import logging
from abc import ABC, abstractmethod
from typing import Self

from tailrace.model.errors import TailraceError

_log = logging.getLogger("tailrace.client")


class AsyncClosing(ABC):
    @abstractmethod
    async def close(self) -> None:
        """Finish what was begun, and let go of everything. Raises what went wrong with it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except TailraceError:
            # The first error is the one to be told.
            if kind is None:
                raise
            _log.exception("%s could not be closed cleanly", type(self).__name__)
