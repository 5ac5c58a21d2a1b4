"""Reads the fields of records: plainly at first, by compiled loops once there is much to read.

The loops take a second to load, and tens of megabytes; small queries do without. Compiling them, the first time on a machine,
takes several seconds more, in which the interpreter's lock is mostly taken. So a process of its own compiles, and leaves what
it made where this one finds it. Queries go on plainly meanwhile, unless they have so much to read that it is quicker to wait.
"""

import logging
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

from tailrace.model.limits import Limits
from tailrace.wire.arrow import Chunk, Fields, ReadFields
from tailrace.wire.plain_fields import plain_fields

_MUCH_RECORDS = 20_000
_TOO_MUCH_RECORDS = 200_000
_WAIT_SECONDS = 10
_KERNELS = "tailrace.wire.decoding_kernels"
_COMPILE_SECONDS = 120

_log = logging.getLogger(__name__)


class FieldReader:
    """May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = 0
        self._loading: threading.Thread | None = None
        self._is_loaded = threading.Event()
        self._read: ReadFields = plain_fields

    def __call__(self, chunk: Chunk, limits: Limits) -> Fields:
        if not self._is_loaded.is_set():
            self._count(sum(head.records for head in chunk.heads))
            if self._records >= _TOO_MUCH_RECORDS:
                self._is_loaded.wait(_WAIT_SECONDS)
        return self._read(chunk, limits)

    def load(self) -> None:
        """Load the loops now, and return when that is done or turned out to be impossible here."""
        self._count(_MUCH_RECORDS)
        self._is_loaded.wait()

    def _count(self, records: int) -> None:
        with self._lock:
            self._records += records
            if self._loading is None and self._records >= _MUCH_RECORDS:
                self._loading = threading.Thread(target=self._load, name="tailrace-kernels", daemon=True)
                self._loading.start()

    def _load(self) -> None:
        try:
            if not _are_compiled():
                command = [sys.executable, "-c", f"import {_KERNELS}"]
                subprocess.run(command, check=True, timeout=_COMPILE_SECONDS, capture_output=True)  # noqa: S603
            from tailrace.wire.compiled_fields import compiled_fields

            self._read = compiled_fields()
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            _log.warning("Records are decoded without compiled loops, many times slower: %s", error)
        finally:
            self._is_loaded.set()


def _are_compiled() -> bool:
    """Whether there are compiled loops beside the code, where numba puts them if it can."""
    found = find_spec(_KERNELS)
    if found is None or found.origin is None:
        return False
    code = Path(found.origin)
    return any((code.parent / "__pycache__").glob(f"{code.stem}.*.nbi"))
