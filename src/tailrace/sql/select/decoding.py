"""Loads the compiled loops that decode records, while queries go on without them.

Loading takes a second, and compiling, the first time on a machine, several more, in which the interpreter's lock is mostly
taken. So a process of its own compiles, and leaves what it made where this one finds it.
"""

import logging
import subprocess
import sys
import threading

from tailrace.wire.arrow import ReadFields
from tailrace.wire.plain_fields import plain_fields

_COMPILE = "import tailrace.wire.decoding_kernels"
_COMPILE_SECONDS = 120

_log = logging.getLogger(__name__)


class FieldReaders:
    """The best way to read the fields of records that there is yet. May be asked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loading: threading.Thread | None = None
        self._best: ReadFields = plain_fields

    def best(self) -> ReadFields:
        with self._lock:
            if self._loading is None:
                self._loading = threading.Thread(target=self._load, name="tailrace-kernels", daemon=True)
                self._loading.start()
        return self._best

    def wait(self) -> None:
        """Until the loops are loaded, or turned out not to be loadable here."""
        self.best()
        if self._loading is not None:
            self._loading.join()

    def _load(self) -> None:
        try:
            subprocess.run([sys.executable, "-c", _COMPILE], check=True, timeout=_COMPILE_SECONDS, capture_output=True)  # noqa: S603
            from tailrace.wire.compiled_fields import compiled_fields

            self._best = compiled_fields()
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            _log.warning("Records are decoded without compiled loops, many times slower: %s", error)
