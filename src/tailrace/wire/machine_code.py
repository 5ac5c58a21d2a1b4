"""Machine code that is compiled once by numba and kept in a file, so that processes which use it do not load the compiler.

A file has one function that refers to no library, no constant and no address, so it may lie anywhere in memory. It is kept
beside the source, as Python keeps its own, or in the user's cache.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, misc"
import ctypes
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from mmap import MAP_PRIVATE, PROT_EXEC, PROT_READ
from pathlib import Path
from typing import Any

from tailrace.model.commit import Buffer

_COMPILE_SECONDS = 120
# The code must run on every processor of its architecture. Vector instructions would refer to tables of constants outside it.
_COMPILER_SETTINGS = {"NUMBA_CPU_NAME": "generic", "NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
_MOST_CODE_BYTES = 64 * 1024
_DIGEST_BYTES = hashlib.sha256().digest_size

Numbers = ctypes.Array[ctypes.c_int64]
_NUMBER_BYTES = ctypes.sizeof(ctypes.c_int64)
_Start = ctypes.c_char * 0


class MachineCode:
    """The file of one function. `program` is the module that compiles and saves it when it is run."""

    def __init__(self, name: str, program: str, sources: Sequence[str]) -> None:
        self._name = name
        self._program = program
        self._sources = [Path(source) for source in sources]

    def load(self) -> int | None:
        """Map the function for the life of the process and return its address; `None` if it is not on file."""
        for folder in self._folders():
            try:
                with (folder / self.file_name).open("rb") as file:
                    _check(file.read(_MOST_CODE_BYTES))
                    return _mapped(file.fileno())
            except OSError:
                continue
        return None

    def compile(self) -> int:
        """Compile and save the function, and map it. Raises `OSError` or `subprocess.SubprocessError` if it can't."""
        # The compiling process saves the code itself, so that it is there for the next start even if this process ends before.
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", self._program],
            env=os.environ | _COMPILER_SETTINGS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_COMPILE_SECONDS,
        )
        found = self.load()
        if found is None:
            raise OSError("machine code can't be saved or mapped in any of " + ", ".join(map(str, self._folders())))
        return found

    def save(self, code: bytes) -> None:
        """Save the code in the first folder that can be written to."""
        for folder in self._folders():
            # The file is renamed when it is complete: a file that another process maps must not change.
            unfinished = folder / f"{self.file_name}.{os.getpid()}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                unfinished.write_bytes(code + hashlib.sha256(code).digest())
                unfinished.rename(folder / self.file_name)
            except OSError:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
            else:
                return

    @property
    def file_name(self) -> str:
        """The name of the file, which depends on the sources and the architecture of the processor."""
        digest = hashlib.sha256()
        for source in self._sources:
            digest.update(source.read_bytes())
        return f"{self._name}-{platform.machine()}-{digest.hexdigest()[:16]}.bin"

    def _folders(self) -> Iterator[Path]:
        yield Path(cache_from_source(str(self._sources[0]))).parent
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tailrace"


class MachineFunction:
    """A function of machine code over bytes and numbers. May be called from any thread."""

    def __init__(self, address: int, parameters: int, *, keeps_lock_bytes: int) -> None:
        """`keeps_lock_bytes`: for so few bytes it keeps the interpreter's lock, because to get that back may take longer."""
        # The addresses of the result and of an exception come first.
        types = (ctypes.c_void_p,) * (2 + parameters)
        self._keeping_lock = ctypes.PYFUNCTYPE(ctypes.c_int32, *types)(address)
        self._without_lock = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)
        self._keeps_lock_bytes = keeps_lock_bytes

    def __call__(self, data: Buffer, numbers: Numbers, *more: int) -> int:
        """Call it with the bytes, the numbers and the addresses of more. The last of the numbers is for the result."""
        pointer: object = data
        if type(data) is not bytes:
            try:
                pointer = _Start.from_buffer(data)
            except TypeError:
                # ctypes gives no pointer into a read-only view.
                pointer = bytes(data)
        address = ctypes.addressof(numbers)
        call = self._keeping_lock if len(data) <= self._keeps_lock_bytes else self._without_lock
        call(address + (len(numbers) - 1) * _NUMBER_BYTES, None, pointer, address, *more)
        return numbers[-1]


def address_of(buffer: bytearray) -> int:
    """Return where the bytes are. They must not be resized as long as the address is used."""
    return ctypes.addressof(_Start.from_buffer(buffer))


def machine_code(function: Any) -> bytes:
    """Return the code of what `numba.cfunc` made, for any processor of this architecture."""
    # Imported only in the process that compiles: numba and LLVM take a second to load, and 70 MB that a server would not free.
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

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


def _check(data: bytes) -> None:
    """Raise `OSError` unless the file is complete: a power cut may leave one that was never filled."""
    code, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not code or hashlib.sha256(code).digest() != digest:
        raise OSError(f"the file of {len(data)} bytes is not the machine code that was saved")


def _mapped(file: int) -> int:
    size = os.fstat(file).st_size
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    address = library.mmap(None, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "machine code can't be mapped")
    return int(address)
