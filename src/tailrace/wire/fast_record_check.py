"""Fast path of `record_check.plain_scan`: `record_check.scan_records` as machine code, hundreds of times as fast.

The code is compiled once and kept in a file of two KiB, beside the source as Python keeps its own or in the user's cache. A
server maps the file and calls it; it does not load the compiler. If `load_scan` finds no file, callers use `plain_scan`, and
`compile_scan` makes the file in a few seconds, in a process of its own. `tests/property/test_record_check.py` holds both equal.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, misc"
import ctypes
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import cache_from_source
from mmap import MAP_PRIVATE, PROT_EXEC, PROT_READ
from pathlib import Path

import tailrace.wire.record_check as record_check
from tailrace.model.commit import Buffer
from tailrace.wire.record_check import ScanResult

_COMPILER = "tailrace.wire.fast_record_check"
"""The program that compiles, which is this module."""
_COMPILE_SECONDS = 120
_SOURCES = (Path(record_check.__file__), Path(__file__))
_COMPILED_HELPERS = ("read_number", "read_long", "is_utf8")
# The code must run on every processor of its architecture. Vector instructions would refer to tables of constants outside it.
_COMPILER_SETTINGS = {"NUMBA_CPU_NAME": "generic", "NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
_MOST_CODE_BYTES = 64 * 1024
_DIGEST_BYTES = hashlib.sha256().digest_size
_FEW_BYTES = 2 * 1024 * 1024
"""Up to this size a scan keeps the interpreter's lock: it takes a quarter of a millisecond, and to get the lock back may take
longer."""

_Places = ctypes.c_int64 * 5
_RESULT_AT = 32
_Pointer = ctypes.c_char * 0
_address_of = ctypes.addressof
# The addresses of the result and of an exception, then the parameters of `scan_records`.
_PARAMETERS = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CompiledScan:
    """Scans records by machine code. May be called from any thread."""

    def __init__(self, address: int) -> None:
        self._keeping_lock = ctypes.PYFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(address)
        self._without_lock = ctypes.CFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(address)

    def __call__(self, data: Buffer, start: int, count: int, base_timestamp: int) -> ScanResult:
        end = len(data)
        pointer: object = data
        if type(data) is not bytes:
            try:
                pointer = _Pointer.from_buffer(data)
            except TypeError:
                # ctypes gives no pointer into a read-only view.
                pointer = bytes(data)
        places = _Places(start, end, count, base_timestamp)
        address = _address_of(places)
        call = self._keeping_lock if end <= _FEW_BYTES else self._without_lock
        call(address + _RESULT_AT, None, pointer, address)
        return places[4], places[0], places[1], places[2]


def load_scan() -> CompiledScan | None:
    """Return the compiled scan, or `None` if its code is not on file."""
    for folder in _folders():
        try:
            with (folder / _file_name()).open("rb") as file:
                _check(file.read(_MOST_CODE_BYTES))
                return _mapped(file.fileno())
        except OSError:
            continue
    return None


def compile_scan() -> CompiledScan:
    """Compile and save the code, and load it. Raises `OSError` or `subprocess.SubprocessError` if that is not possible."""
    # The compiling process saves the code itself, so that it is there for the next start even if this process ends before.
    subprocess.run(  # noqa: S603
        [sys.executable, "-m", _COMPILER],
        env=os.environ | _COMPILER_SETTINGS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_COMPILE_SECONDS,
    )
    found = load_scan()
    if found is None:
        raise OSError("machine code can't be saved or mapped in any of " + ", ".join(map(str, _folders())))
    return found


def save_code(code: bytes) -> None:
    """Save the code in the first folder that can be written to."""
    for folder in _folders():
        # The file is renamed when it is complete: a file that another process maps must not change.
        unfinished = folder / f"{_file_name()}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(code + hashlib.sha256(code).digest())
            unfinished.rename(folder / _file_name())
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
        else:
            return


def _folders() -> Iterator[Path]:
    yield Path(cache_from_source(__file__)).parent
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tailrace"


def _file_name() -> str:
    """Return the name of the file, which depends on the source and the architecture of the processor."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        digest.update(source.read_bytes())
    return f"record_scan-{platform.machine()}-{digest.hexdigest()[:16]}.bin"


def _check(data: bytes) -> None:
    """Raise `OSError` unless the file is complete: a power cut may leave one that was never filled."""
    code, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not code or hashlib.sha256(code).digest() != digest:
        raise OSError(f"the file of {len(data)} bytes is not the machine code that was saved")


def _mapped(file: int) -> CompiledScan:
    """Map the file for the life of the process."""
    size = os.fstat(file).st_size
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    address = library.mmap(None, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "machine code can't be mapped")
    return CompiledScan(address)


def _compile() -> bytes:
    """Return the machine code of `scan_records` for any processor of this architecture.

    The code refers to no library, no constant and no address, so it may lie anywhere in memory.
    """
    # Imported only in the process that compiles: numba and LLVM take a second to load, and 70 MB that a server would not free.
    import llvmlite.binding as llvm  # type: ignore[import-untyped]
    import numba
    from numba import int64, types, uint8

    for name in _COMPILED_HELPERS:
        setattr(record_check, name, numba.njit(forceinline=True)(getattr(record_check, name)))
    signature = int64(types.CPointer(uint8), types.CPointer(int64))
    function = numba.cfunc(signature)(record_check.scan_records)
    module = llvm.parse_assembly(function.inspect_llvm())
    # Numba wraps the function in one that checks for Python's exceptions. There are none, so the wrapper is not emitted.
    module.get_function(function.native_name).linkage = "available_externally"
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    found = []
    compiled = llvm.ObjectFileRef.from_data(machine.emit_object(module))
    for section in compiled.sections():
        label = bytes(section.name() or b"")
        if label.startswith(b".rel") and b"text" in label:
            raise RuntimeError("the code refers to an address outside of it")
        if section.is_text() and section.size():
            found.append(section.data())
    (code,) = found
    return code


if __name__ == "__main__":
    save_code(_compile())
