"""Fast path of `record_digests.PlainDigester`: the loop over records as machine code, a hundred times as fast.

The hash is SipHash-2-4. `tests/property/test_record_digests.py` holds both equal in which records they tell apart.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, no-any-return, misc"
import ctypes
import os
from collections.abc import Callable

import numpy as np

from tailrace.model.commit import Buffer
from tailrace.wire import fast_compaction, machine_code, record_check
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader
from tailrace.wire.fast_compaction import sip_hash
from tailrace.wire.machine_code import MachineCode, MachineFunction
from tailrace.wire.record_check import read_long, read_number
from tailrace.wire.record_digests import DIGESTS, RecordDigests, malformed

CODE = MachineCode(
    "record_digests",
    "tailrace.wire.fast_record_digests",
    (__file__, record_check.__file__, fast_compaction.__file__, machine_code.__file__),
)
_COUNT, _BYTES, _BASE_OFFSET, _LAST, _BASE, _HAS_APPEND_TIME, _K0, _K1 = range(8)
_PLACES = 9
_MALFORMED = -1
_KEEPS_LOCK_BYTES = 64 * 1024

_Places = ctypes.c_int64 * _PLACES

# The compiled code has these as numbers of 64 bits. As Python they are plain numbers, which nobody calls.
unsigned: Callable[[int], int] = int
int64_of: Callable[[int], int] = int


class CompiledDigester:
    """Digests records by machine code. May be called from any thread."""

    def __init__(self, address: int) -> None:
        self._digest = MachineFunction(address, 3, keeps_lock_bytes=_KEEPS_LOCK_BYTES)
        self._secret = int.from_bytes(os.urandom(8), signed=True), int.from_bytes(os.urandom(8), signed=True)

    def __call__(self, header: BatchHeader, data: Buffer) -> RecordDigests:
        has_append_time = bool(header.attributes & TIMESTAMP_TYPE_MASK)
        base = header.max_timestamp if has_append_time else header.base_timestamp
        found = np.empty(header.records, DIGESTS)
        places = _Places(
            header.records, len(data), header.base_offset, header.last_offset_delta, base, has_append_time, *self._secret
        )
        if self._digest(data, places, found.ctypes.data):
            raise malformed(header)
        return found


def load_digester() -> CompiledDigester | None:
    """Return the compiled digester, or `None` if its code is not on file."""
    address = CODE.load()
    return None if address is None else CompiledDigester(address)


def compile_digester() -> CompiledDigester:
    """Compile and save the code, and load it. Raises `OSError` or `subprocess.SubprocessError` if that is not possible."""
    return CompiledDigester(CODE.compile())


def digest_records(data, places, found):
    """Write four numbers for each record to `found`. Return 0, or what went wrong."""
    size = places[_BYTES]
    base_offset = places[_BASE_OFFSET]
    last = places[_LAST]
    base = places[_BASE]
    has_append_time = places[_HAS_APPEND_TIME]
    k0 = unsigned(places[_K0])
    k1 = unsigned(places[_K1])
    at = 0
    for index in range(places[_COUNT]):
        length, at = read_number(data, at, size)
        if at < 0 or length < 6 or length > size - at:
            return _MALFORMED
        end = at + length
        later, at = read_long(data, at + 1, end)
        if at < 0:
            return _MALFORMED
        delta, at = read_number(data, at, end)
        if at < 0 or delta < 0 or delta > last:
            return _MALFORMED
        begin = at
        key_size, at = read_number(data, at, end)
        if at < 0 or key_size < -1 or key_size > end - at:
            return _MALFORMED
        key_at = at
        at += max(key_size, 0)
        value_size, at = read_number(data, at, end)
        if at < 0:
            return _MALFORMED
        timestamp = base if has_append_time else base + later
        digest, _ = sip_hash(data, begin, end - begin, k0, k1 ^ unsigned(timestamp))
        key = int64_of(0)
        kind = 0
        if key_size >= 0:
            hashed, _ = sip_hash(data, key_at, key_size, k1, k0)
            key = int64_of(hashed)
            kind = 1
        if value_size >= 0:
            kind += 2
        found[4 * index] = base_offset + delta
        found[4 * index + 1] = int64_of(digest)
        found[4 * index + 2] = key
        found[4 * index + 3] = kind
        at = end
    return 0


def _compile() -> bytes:
    # Imported only in the process that compiles.
    import numba
    from numba import int64, types, uint8, uint64

    inlined = numba.njit(forceinline=True)
    vars(fast_compaction).update(_unsigned=uint64, int64_of=int64)
    for name in ("rotated", "sip_round", "sip_hash"):
        setattr(fast_compaction, name, inlined(getattr(fast_compaction, name)))
    names = globals()
    names["unsigned"] = uint64
    names["int64_of"] = int64
    for name in ("read_number", "read_long"):
        names[name] = inlined(names[name])
    names["sip_hash"] = fast_compaction.sip_hash
    signature = int64(types.CPointer(uint8), types.CPointer(int64), types.CPointer(int64))
    return machine_code.machine_code(numba.cfunc(signature)(digest_records))


if __name__ == "__main__":
    CODE.save(_compile())
