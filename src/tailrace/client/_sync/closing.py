# Generated from _async/closing.py by tools/generate_sync.py; change that file, then run it.

"""What is closed at the end of a `with` block."""

import logging
from abc import ABC, abstractmethod
from typing import Self

from tailrace.model.errors import TailraceError

_log = logging.getLogger("tailrace.client")


class Closing(ABC):
    @abstractmethod
    def close(self) -> None:
        """Finish what was begun, and let go of everything. Raises what went wrong with it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except TailraceError:
            # The first error is the one to be told.
            if kind is None:
                raise
            _log.exception("%s could not be closed cleanly", type(self).__name__)
