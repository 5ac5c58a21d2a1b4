"""Looks at the records inside batches that come from outside: at once where that is quick, else in threads.

A batch that is not compressed is walked over in about 10 ns a record, by machine code (`wire/machine_code.py`). To
decompress one takes milliseconds, and its size says little about how many: that is done in threads, without the
interpreter's lock.
"""

import logging
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tailrace.model.commit import Buffer
from tailrace.model.errors import MessageTooLargeError
from tailrace.model.limits import KIB, Limits
from tailrace.wire.batch import CODEC_MASK, BatchHeader
from tailrace.wire.machine_code import Scan, compile_scan, load_scan, plain_scan
from tailrace.wire.record_check import check_records

_QUICK_BYTES = 4 * KIB
_QUICK_DECOMPRESSED_BYTES = 64 * KIB
_QUICK_PLAIN_RECORDS = 500
"""As many as the plain walk manages in about a millisecond."""
_MANY_PLAIN_RECORDS = 2_000
"""After so many it is worth having the walk compiled."""

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


class RecordChecks:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        compiled = load_scan()
        self._scan: Scan = compiled or plain_scan
        self._is_compiled = compiled is not None
        self._plain_records = 0
        self._lock = threading.Lock()
        self._compiler: threading.Thread | None = None
        self._threads = ThreadPoolExecutor(limits.check_threads, "tailrace-checker")

    def quick_check(self, batch: Buffer, header: BatchHeader) -> int | None:
        """Return the newest timestamp of the records, or None if it takes a thread to find out. Raises where they are bad."""
        if not header.attributes & CODEC_MASK:
            if self._is_compiled:
                return check_records(batch, header, 0, self._scan)
            return self._check(batch, header, 0) if header.records <= _QUICK_PLAIN_RECORDS else None
        if len(batch) > _QUICK_BYTES or not (self._is_compiled or header.records <= _QUICK_PLAIN_RECORDS):
            return None
        try:
            return self._check(batch, header, min(_QUICK_DECOMPRESSED_BYTES, self._limits.decompressed_batch_bytes))
        except MessageTooLargeError:
            return None

    def check(self, batch: Buffer, header: BatchHeader) -> int:
        """Return the newest timestamp of the records. May be called from any thread; raises where they are bad."""
        return self._check(batch, header, self._limits.decompressed_batch_bytes)

    def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Do something that takes long in one of the threads for it."""
        return self._threads.submit(call, *args, **kwargs)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _check(self, batch: Buffer, header: BatchHeader, most_bytes: int) -> int:
        if not self._is_compiled:
            self._count(header.records)
        return check_records(batch, header, most_bytes, self._scan)

    def _count(self, records: int) -> None:
        with self._lock:
            self._plain_records += records
            if self._compiler is None and self._plain_records >= _MANY_PLAIN_RECORDS:
                self._compiler = threading.Thread(target=self._compile, name="tailrace-compiler", daemon=True)
                self._compiler.start()

    def _compile(self) -> None:
        try:
            self._scan = compile_scan()
            self._is_compiled = True
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("Records of producers are checked without compiled code, many times slower: %s", error)
