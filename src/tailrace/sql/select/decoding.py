"""Reads the fields of records: plainly at first, by compiled loops once there is much to read.

The loops take a second to load, and tens of megabytes; small queries do without. Compiling them, the first time on a machine,
takes several seconds more, in which the interpreter's lock is mostly taken. So a process of its own compiles, and leaves what
it made where this one finds it. Queries go on meanwhile.
"""

import logging
import subprocess
import sys
import threading

from tailrace.model.limits import Limits
from tailrace.wire.arrow import Chunk, Fields, ReadFields
from tailrace.wire.plain_fields import plain_fields

_MUCH_RECORDS = 20_000
_COMPILE = "import tailrace.wire.decoding_kernels"
_COMPILE_SECONDS = 120

_log = logging.getLogger(__name__)


class FieldReader:
    """May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = 0
        self._loading: threading.Thread | None = None
        self._read: ReadFields = plain_fields

    def __call__(self, chunk: Chunk, limits: Limits) -> Fields:
        if self._loading is None:
            self._count(sum(head.records for head in chunk.heads))
        return self._read(chunk, limits)

    def load(self) -> None:
        """Load the loops now, and return when that is done or turned out to be impossible here."""
        self._count(_MUCH_RECORDS)
        if self._loading is not None:
            self._loading.join()

    def _count(self, records: int) -> None:
        with self._lock:
            self._records += records
            if self._loading is None and self._records >= _MUCH_RECORDS:
                self._loading = threading.Thread(target=self._load, name="tailrace-kernels", daemon=True)
                self._loading.start()

    def _load(self) -> None:
        try:
            command = [sys.executable, "-c", _COMPILE]
            subprocess.run(command, check=True, timeout=_COMPILE_SECONDS, capture_output=True)  # noqa: S603  no text of users
            from tailrace.wire.compiled_fields import compiled_fields

            self._read = compiled_fields()
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            _log.warning("Records are decoded without compiled loops, many times slower: %s", error)
