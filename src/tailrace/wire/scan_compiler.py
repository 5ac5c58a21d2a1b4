"""A program that compiles `wire/record_scan.py` and keeps the machine code of the one function for others to load.

It is a process of its own because numba and LLVM take a second to load and 70 MB that a server would keep for good. What they
make of these loops is two KiB that need nothing: no library, no constant, no address. So the code may stand anywhere in memory.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, untyped-decorator, misc"
import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
from numba import int64, types, uint8

from tailrace.wire import record_scan
from tailrace.wire.machine_code import keep_code

_HELPERS = ("read_number", "read_long", "is_utf8")
_SIGNATURE = int64(types.CPointer(uint8), types.CPointer(int64))


def machine_code() -> bytes:
    """For any processor of this architecture."""
    for name in _HELPERS:
        setattr(record_scan, name, numba.njit(forceinline=True)(getattr(record_scan, name)))
    function = numba.cfunc(_SIGNATURE)(record_scan.scan_records)
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
    keep_code(machine_code())
