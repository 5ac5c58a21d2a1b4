"""Fast path of `record_digests.PlainDigester`: the loop over records as machine code, a hundred times as fast.

The hash is SipHash-2-4. `tests/property/test_record_digests.py` holds both equal in which records they tell apart.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, no-any-return, misc"
import ctypes
import os

import numpy as np

from tailrace.model.commit import Buffer
from tailrace.wire import fast_compaction, machine_code, record_check
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader
from tailrace.wire.machine_code import MachineCode
from tailrace.wire.record_digests import DIGESTS, RecordDigests, malformed

CODE = MachineCode(
    "record_digests",
    "tailrace.wire.fast_record_digests",
    (__file__, record_check.__file__, fast_compaction.__file__, machine_code.__file__),
)
_COUNT, _BYTES, _BASE_OFFSET, _LAST, _BASE, _HAS_APPEND_TIME, _K0, _K1 = range(8)
_PLACES = 9
_RESULT_AT = 8 * 8
_MALFORMED = -1
_KEEPS_LOCK_BYTES = 64 * 1024

_Places = ctypes.c_int64 * _PLACES
_Pointer = ctypes.c_char * 0
_PARAMETERS = (ctypes.c_void_p,) * 5


class CompiledDigester:
    """Digests records by machine code. May be called from any thread."""

    def __init__(self, address: int) -> None:
        self._keeping_lock = ctypes.PYFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(address)
        self._without_lock = ctypes.CFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(address)
        self._secret = int.from_bytes(os.urandom(8), signed=True), int.from_bytes(os.urandom(8), signed=True)

    def __call__(self, header: BatchHeader, data: Buffer) -> RecordDigests:
        size = len(data)
        pointer: object = data
        if type(data) is not bytes:
            try:
                pointer = _Pointer.from_buffer(data)
            except TypeError:
                # ctypes gives no pointer into a read-only view.
                pointer = bytes(data)
        has_append_time = bool(header.attributes & TIMESTAMP_TYPE_MASK)
        base = header.max_timestamp if has_append_time else header.base_timestamp
        found = np.empty(header.records, DIGESTS)
        places = _Places(
            header.records, size, header.base_offset, header.last_offset_delta, base, has_append_time, *self._secret
        )
        address = ctypes.addressof(places)
        call = self._keeping_lock if size <= _KEEPS_LOCK_BYTES else self._without_lock
        call(address + _RESULT_AT, None, pointer, address, found.ctypes.data)
        if places[-1]:
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


def unsigned(number):
    return number


def int64_of(number):
    return number


def sip_hash(data, at, size, k0, k1):
    return fast_compaction.sip_hash(data, at, size, k0, k1)


def read_number(data, at, end):
    return record_check.read_number(data, at, end)


def read_long(data, at, end):
    return record_check.read_long(data, at, end)


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
    names["read_number"] = inlined(record_check.read_number)
    names["read_long"] = inlined(record_check.read_long)
    names["sip_hash"] = fast_compaction.sip_hash
    signature = int64(types.CPointer(uint8), types.CPointer(int64), types.CPointer(int64))
    return machine_code.machine_code(numba.cfunc(signature)(digest_records))


if __name__ == "__main__":
    CODE.save(_compile())
