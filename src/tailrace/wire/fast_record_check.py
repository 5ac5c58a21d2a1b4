"""Fast path of `record_check.plain_scan`: `record_check.scan_records` as machine code, hundreds of times as fast.

The code is compiled once and kept in a file of two KiB (`wire/machine_code.py`), which a server maps and calls. If `load_scan`
finds no file, callers use `plain_scan`, and `compile_scan` makes the file in a few seconds, in a process of its own.
`tests/property/test_record_check.py` holds both equal.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, misc"
import ctypes

import tailrace.wire.record_check as record_check
from tailrace.model.commit import Buffer
from tailrace.wire import machine_code
from tailrace.wire.machine_code import MachineCode, MachineFunction
from tailrace.wire.record_check import ScanResult

CODE = MachineCode("record_scan", "tailrace.wire.fast_record_check", (record_check.__file__, __file__, machine_code.__file__))
_COMPILED_HELPERS = ("read_number", "read_long", "is_utf8")
_FEW_BYTES = 2 * 1024 * 1024
"""A scan of so many takes a quarter of a millisecond."""

_Places = ctypes.c_int64 * 7


class CompiledScan:
    """Scans records by machine code. May be called from any thread."""

    def __init__(self, address: int) -> None:
        self._scan = MachineFunction(address, 2, keeps_lock_bytes=_FEW_BYTES)

    def __call__(
        self, data: Buffer, start: int, count: int, base_timestamp: int, *, spare: int = 0, needs_keys: bool = False
    ) -> ScanResult:
        places = _Places(start, len(data), count, base_timestamp, spare, needs_keys)
        return self._scan(data, places), places[0], places[1], places[2]


def load_scan() -> CompiledScan | None:
    """Return the compiled scan, or `None` if its code is not on file."""
    address = CODE.load()
    return None if address is None else CompiledScan(address)


def compile_scan() -> CompiledScan:
    """Compile and save the code, and load it. Raises `OSError` or `subprocess.SubprocessError` if that is not possible."""
    return CompiledScan(CODE.compile())


def _compile() -> bytes:
    # Imported only in the process that compiles.
    import numba
    from numba import int64, types, uint8

    for name in _COMPILED_HELPERS:
        setattr(record_check, name, numba.njit(forceinline=True)(getattr(record_check, name)))
    signature = int64(types.CPointer(uint8), types.CPointer(int64))
    return machine_code.machine_code(numba.cfunc(signature)(record_check.scan_records))


if __name__ == "__main__":
    CODE.save(_compile())
