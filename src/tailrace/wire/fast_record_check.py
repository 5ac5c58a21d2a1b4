"""The walk of `wire/record_check.py` as machine code: compiled once, and kept beside its source as Python keeps its own.

The code is a file of two KiB that is mapped and called; nothing of the compiler is loaded here. Who finds no such file goes on
with the plain functions, and may have it made by `compile_scan`, which takes a few seconds in a process of its own.
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

import tailrace.wire.record_check as record_scan
from tailrace.model.commit import Buffer
from tailrace.wire.record_check import ScanResult

_COMPILER = "tailrace.wire.fast_record_check"
"""This module, as a program."""
_COMPILE_SECONDS = 120
_SOURCES = (Path(record_scan.__file__), Path(__file__))
_COMPILED_HELPERS = ("read_number", "read_long", "is_utf8")
# The code must run on every processor of its kind, and must not refer to tables of constants, which vectors would have.
_COMPILER_SETTINGS = {"NUMBA_CPU_NAME": "generic", "NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
_MOST_CODE_BYTES = 64 * 1024
_DIGEST_BYTES = hashlib.sha256().digest_size
_FEW_BYTES = 2 * 1024 * 1024
"""So few are walked over in less time, a quarter of a millisecond, than it may take to get the interpreter's lock back."""

_Places = ctypes.c_int64 * 5
_RESULT_AT = 32
_Pointer = ctypes.c_char * 0
_address_of = ctypes.addressof
# Where the result goes and where an exception would go, then the parameters of `scan_records`.
_PARAMETERS = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CompiledScan:
    """Calls the machine code. May be called from any thread."""

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
                # A view that can't be written to: there is no pointer into it.
                pointer = bytes(data)
        places = _Places(start, end, count, base_timestamp)
        address = _address_of(places)
        call = self._keeping_lock if end <= _FEW_BYTES else self._without_lock
        call(address + _RESULT_AT, None, pointer, address)
        return places[4], places[0], places[1]


def load_scan() -> CompiledScan | None:
    """Return the compiled walk, if the code is there."""
    for folder in _folders():
        try:
            with (folder / _file_name()).open("rb") as file:
                _check(file.read(_MOST_CODE_BYTES))
                return _mapped(file.fileno())
        except OSError:
            continue
    return None


def compile_scan() -> CompiledScan:
    """Have the code made and kept. Raises `OSError` or `subprocess.SubprocessError` where that can't be done."""
    # The process keeps the code itself, so that it is there for the next one even if this one ends before.
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
        raise OSError("machine code can't be kept or mapped in any of " + ", ".join(map(str, _folders())))
    return found


def save_code(code: bytes) -> None:
    """Keep the code in the first folder that takes it."""
    for folder in _folders():
        # Renamed when it is whole: what another process maps must not change.
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
    """Another name for another source or another kind of processor."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        digest.update(source.read_bytes())
    return f"record_scan-{platform.machine()}-{digest.hexdigest()[:16]}.bin"


def _check(data: bytes) -> None:
    """Raise `OSError` unless the file is whole: a power cut may leave one that was never filled."""
    code, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not code or hashlib.sha256(code).digest() != digest:
        raise OSError(f"{len(data)} bytes are no machine code of ours")


def _mapped(file: int) -> CompiledScan:
    """The mapping stays for the life of the process."""
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

    It needs nothing: no library, no constant, no address. So it may stand anywhere in memory.
    """
    # Only in the process that compiles: the two take a second to load, and 70 MB that a server would keep for good.
    import llvmlite.binding as llvm  # type: ignore[import-untyped]
    import numba
    from numba import int64, types, uint8

    for name in _COMPILED_HELPERS:
        setattr(record_scan, name, numba.njit(forceinline=True)(getattr(record_scan, name)))
    signature = int64(types.CPointer(uint8), types.CPointer(int64))
    function = numba.cfunc(signature)(record_scan.scan_records)
    module = llvm.parse_assembly(function.inspect_llvm())
    # What checks for Python's exceptions before it calls the function: there are none.
    module.get_function(function.native_name).linkage = "available_externally"
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    found = []
    compiled = llvm.ObjectFileRef.from_data(machine.emit_object(module))
    for section in compiled.sections():
        label = bytes(section.name() or b"")
        if label.startswith(b".rel") and b"text" in label:
            raise RuntimeError("the code refers to something outside of it")
        if section.is_text() and section.size():
            found.append(section.data())
    (code,) = found
    return code


if __name__ == "__main__":
    save_code(_compile())
