"""Fast path of `compaction.PlainLatestOffsets`: the loop over records as machine code, a hundred times as fast.

The keys are in a table of 24 bytes an entry: two halves of a SipHash-2-4 of 128 bits with a secret, and the offset plus one; an
entry of zeros is empty. An entry is looked for from the place that its hash names, and then in the next ones. The table is
never more than three quarters full.

`tests/property/test_compaction_kernel.py` holds both equal.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, no-any-return, misc"
import ctypes
import os
from collections.abc import Callable

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.ids import PartitionId
from tailrace.wire import machine_code, record_check
from tailrace.wire.batch import BatchHeader
from tailrace.wire.compaction import KEY_BYTES, KeptRecords
from tailrace.wire.machine_code import MachineCode, MachineFunction, Numbers
from tailrace.wire.record_check import read_long, read_number

CODE = MachineCode("compaction", "tailrace.wire.fast_compaction", (__file__, record_check.__file__, machine_code.__file__))
_LEAST_SLOTS = 1024
_NOTE, _KEEP = 0, 1
_FULL, _MALFORMED = -2, -1
_COUNT, _BYTES, _BASE_OFFSET, _LAST_DELTA, _MODE, _BOUND, _SLOTS, _MOST, _K0, _K1, _USED, _KEPT, _NEWEST = range(13)
_PLACES = 14
_LEAST = -(1 << 63)
_KEEPS_LOCK_BYTES = 64 * 1024

_Places = ctypes.c_int64 * _PLACES

# The compiled code has these as numbers of 64 bits without a sign. As Python they are plain numbers, which nobody calls.
_unsigned: Callable[[int], int] = int
int64_of: Callable[[int], int] = int


def load_compaction() -> "Callable[[int, int], CompiledLatestOffsets] | None":
    """Return how to make a table, from the most bytes it may take and the keys that it needs; `None` if there is no code."""
    address = CODE.load()
    return None if address is None else lambda most_bytes, keys: CompiledLatestOffsets(address, most_bytes, keys)


def compile_compaction() -> None:
    """Compile and save the code. Raises `OSError` or `subprocess.SubprocessError` if that is not possible."""
    CODE.compile()


class CompiledLatestOffsets:
    """A table of the last offset of each key. Used by one thread at a time."""

    def __init__(self, address: int, most_bytes: int, keys: int) -> None:
        """`keys`: there is no need for more room than for so many."""
        self._scan = MachineFunction(address, 4, keeps_lock_bytes=_KEEPS_LOCK_BYTES)
        slots = _LEAST_SLOTS
        while slots * 2 * KEY_BYTES <= most_bytes and slots * 3 < keys * 4:
            slots *= 2
        self._slots = slots
        self._most = slots * 3 // 4
        self._used = 0
        self._table = (ctypes.c_uint64 * (slots * 3))()
        self._secret = int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8))
        self._spans = (ctypes.c_int64 * 0)()

    def note(self, partition: PartitionId, header: BatchHeader, data: Buffer, stop: int) -> bool:
        places = self._run(partition, header, data, _NOTE, stop)
        self._used = places[_USED]
        return bool(places[-1] != _FULL)

    def kept(self, partition: PartitionId, header: BatchHeader, data: Buffer, expired_end: int) -> KeptRecords:
        if len(self._spans) < 2 * header.records:
            self._spans = (ctypes.c_int64 * (2 * header.records))()
        places = self._run(partition, header, data, _KEEP, expired_end)
        count = places[-1]
        spans = self._spans[: 2 * count]
        return KeptRecords(places[_KEPT], list(zip(spans[::2], spans[1::2], strict=True)), places[_NEWEST])

    def _run(self, partition: PartitionId, header: BatchHeader, data: Buffer, mode: int, bound: int) -> Numbers:
        k0, k1 = self._secret
        k1 ^= partition.topic_id << 32 | partition.number
        places = _Places(
            header.records,
            len(data),
            header.base_offset,
            header.last_offset_delta,
            mode,
            bound,
            self._slots,
            self._most,
            _signed(k0),
            _signed(k1),
            self._used,
            0,
            _LEAST,
        )
        if self._scan(data, places, ctypes.addressof(self._table), ctypes.addressof(self._spans)) == _MALFORMED:
            raise CorruptBatchError(f"the records of the batch at offset {header.base_offset} can't be read")
        return places


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def scan_keys(data, places, table, spans):
    """Note the keys of the records, or find the records to keep. Return how many spans these are, or what went wrong."""
    size = places[_BYTES]
    base = places[_BASE_OFFSET]
    last = places[_LAST_DELTA]
    bound = places[_BOUND]
    notes = places[_MODE] == _NOTE
    slots = places[_SLOTS]
    k0 = _unsigned(places[_K0])
    k1 = _unsigned(places[_K1])
    at = 0
    found = 0
    for _ in range(places[_COUNT]):
        begin = at
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
        key_size, at = read_number(data, at, end)
        if at < 0 or key_size < -1 or key_size > end - at:
            return _MALFORMED
        key_at = at
        at += max(key_size, 0)
        value_size, at = read_number(data, at, end)
        if at < 0:
            return _MALFORMED
        at = end
        offset = base + delta
        if key_size < 0 or (notes and offset >= bound):
            continue
        h0, h1 = sip_hash(data, key_at, key_size, k0, k1)
        slot = int64_of(h0 & _unsigned(slots - 1))
        while table[3 * slot + 2] != _unsigned(0) and (table[3 * slot] != h0 or table[3 * slot + 1] != h1):
            slot += 1
            if slot == slots:
                slot = 0
        known = int64_of(table[3 * slot + 2])
        if notes:
            if known == 0:
                if places[_USED] >= places[_MOST]:
                    return _FULL
                places[_USED] += 1
                table[3 * slot] = h0
                table[3 * slot + 1] = h1
            if offset + 1 > known:
                table[3 * slot + 2] = _unsigned(offset + 1)
            continue
        if known > offset + 1 or (value_size < 0 and offset < bound):
            continue
        places[_KEPT] += 1
        if later > places[_NEWEST]:
            places[_NEWEST] = later
        if found > 0 and spans[2 * found - 1] == begin:
            spans[2 * found - 1] = end
        else:
            spans[2 * found] = begin
            spans[2 * found + 1] = end
            found += 1
    return found


def sip_hash(data, at, size, k0, k1):
    """Return both halves of SipHash-2-4 with 128 bits of some bytes."""
    v0 = k0 ^ _unsigned(0x736F6D6570736575)
    v1 = k1 ^ _unsigned(0x646F72616E646F6D) ^ _unsigned(0xEE)
    v2 = k0 ^ _unsigned(0x6C7967656E657261)
    v3 = k1 ^ _unsigned(0x7465646279746573)
    end = at + size - size % 8
    while at < end:
        word = _unsigned(0)
        for place in range(8):
            word |= _unsigned(data[at + place]) << _unsigned(8 * place)
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = _unsigned(size & 255) << _unsigned(56)
    for place in range(size % 8):
        word |= _unsigned(data[at + place]) << _unsigned(8 * place)
    v3 ^= word
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _unsigned(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _unsigned(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


def sip_round(v0, v1, v2, v3):
    v0 += v1
    v1 = rotated(v1, 13) ^ v0
    v0 = rotated(v0, 32)
    v2 += v3
    v3 = rotated(v3, 16) ^ v2
    v0 += v3
    v3 = rotated(v3, 21) ^ v0
    v2 += v1
    v1 = rotated(v1, 17) ^ v2
    v2 = rotated(v2, 32)
    return v0, v1, v2, v3


def rotated(number, bits):
    return (number << _unsigned(bits)) | (number >> _unsigned(64 - bits))


def _compile() -> bytes:
    # Imported only in the process that compiles.
    import numba
    from numba import int64, types, uint8, uint64

    inlined = numba.njit(forceinline=True)
    names = globals()
    names["_unsigned"] = uint64
    names["int64_of"] = int64
    for name in ("read_number", "read_long", "rotated", "sip_round", "sip_hash"):
        names[name] = inlined(names[name])
    signature = int64(types.CPointer(uint8), types.CPointer(int64), types.CPointer(uint64), types.CPointer(int64))
    return machine_code.machine_code(numba.cfunc(signature)(scan_keys))


if __name__ == "__main__":
    CODE.save(_compile())
