"""Fast path of `rebatching.PlainJoiner`: the loop over records as machine code, a hundred times as fast.

`tests/property/test_rebatching.py` holds both equal.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, no-any-return, misc"
import ctypes
from collections.abc import Callable, Sequence

from tailrace.wire import machine_code, record_check
from tailrace.wire.machine_code import MachineCode, MachineFunction, address_of
from tailrace.wire.rebatching import JoinedRecords, RecordSpan, malformed
from tailrace.wire.record_check import read_long, read_number
from tailrace.wire.records import LEAST_TIMESTAMP

CODE = MachineCode("rebatching", "tailrace.wire.fast_rebatching", (__file__, record_check.__file__, machine_code.__file__))
_COUNT, _BYTES, _FIRST, _STOP, _BASE, _HAS_APPEND_TIME, _NEW_BASE, _LAST, _AT, _NUMBER, _NEWEST = range(11)
_PLACES = 12
_MALFORMED = -1
_GREATEST_LENGTH = 0x7FFFFFFF
_MOST_GROWTH = 18
"""Bytes that a record grows by at most: its timestamp may take 10 instead of 1, its offset 5 instead of 1, its length 5."""
_KEEPS_LOCK_BYTES = 256 * 1024

_Places = ctypes.c_int64 * _PLACES

# The compiled code has these as numbers of 64 bits. As Python they are plain numbers, which nobody calls.
_unsigned: Callable[[int], int] = int
int64_of: Callable[[int], int] = int


class CompiledJoiner:
    """Joins records by machine code. May be called from any thread."""

    def __init__(self, address: int) -> None:
        self._join = MachineFunction(address, 3, keeps_lock_bytes=_KEEPS_LOCK_BYTES)

    def __call__(self, spans: Sequence[RecordSpan]) -> JoinedRecords:
        base = spans[0].base_timestamp
        out = bytearray(sum(len(span.data) + _MOST_GROWTH * span.header.records for span in spans))
        target = address_of(out)
        counts = []
        at = number = 0
        newest = LEAST_TIMESTAMP
        for span in spans:
            header = span.header
            places = _Places(
                header.records,
                len(span.data),
                span.first - header.base_offset,
                span.stop - header.base_offset,
                span.base_timestamp,
                span.append_time is not None,
                base,
                header.last_offset_delta,
                at,
                number,
                newest,
            )
            if self._join(span.data, places, target):
                raise malformed(span)
            at, newest = places[_AT], places[_NEWEST]
            counts.append(places[_NUMBER] - number)
            number = places[_NUMBER]
        del out[at:]
        return JoinedRecords(out, counts, base, newest)


def load_joiner() -> CompiledJoiner | None:
    """Return the compiled joiner, or `None` if its code is not on file."""
    address = CODE.load()
    return None if address is None else CompiledJoiner(address)


def compile_joiner() -> CompiledJoiner:
    """Compile and save the code, and load it. Raises `OSError` or `subprocess.SubprocessError` if that is not possible."""
    return CompiledJoiner(CODE.compile())


def join_records(data, places, out):
    """Write the records with their new numbers to `out`. Return 0, or what went wrong."""
    size = places[_BYTES]
    first = places[_FIRST]
    stop = places[_STOP]
    base = places[_BASE]
    has_append_time = places[_HAS_APPEND_TIME]
    new_base = places[_NEW_BASE]
    last = places[_LAST]
    to = places[_AT]
    number = places[_NUMBER]
    newest = places[_NEWEST]
    at = 0
    for _ in range(places[_COUNT]):
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
        if has_append_time:
            later = 0
        if (later > 0 and base > 0x7FFFFFFFFFFFFFFF - later) or (later < 0 and base < -0x7FFFFFFFFFFFFFFF - 1 - later):
            return _MALFORMED
        if delta < first or delta >= stop:
            at = end
            continue
        timestamp = base + later
        newest = max(newest, timestamp)
        later = timestamp - new_base
        length = 1 + number_size(later) + number_size(number) + end - at
        if length > _GREATEST_LENGTH:
            return _MALFORMED
        to = write_number(out, to, length)
        out[to] = 0
        to = write_number(out, to + 1, later)
        to = write_number(out, to, number)
        while at < end:
            out[to] = data[at]
            to += 1
            at += 1
        number += 1
    places[_AT] = to
    places[_NUMBER] = number
    places[_NEWEST] = newest
    return 0


def number_size(number):
    """Return how many bytes a number takes."""
    rest = _unsigned((number << 1) ^ (number >> 63))
    size = 1
    while rest > _unsigned(127):
        rest >>= _unsigned(7)
        size += 1
    return size


def write_number(out, at, number):
    """Write a number and return where it ends."""
    rest = _unsigned((number << 1) ^ (number >> 63))
    while rest > _unsigned(127):
        out[at] = int64_of((rest & _unsigned(127)) | _unsigned(128))
        rest >>= _unsigned(7)
        at += 1
    out[at] = int64_of(rest)
    return at + 1


def _compile() -> bytes:
    # Imported only in the process that compiles.
    import llvmlite.binding as llvm  # type: ignore[import-untyped]
    import numba
    from numba import int64, types, uint8, uint64

    # The compiler would make calls of the C library out of the loop that copies, and the code may call nothing.
    llvm.set_option("tailrace", "-disable-loop-idiom-all")
    inlined = numba.njit(forceinline=True)
    names = globals()
    names["_unsigned"] = uint64
    names["int64_of"] = int64
    for name in ("read_number", "read_long", "number_size", "write_number"):
        names[name] = inlined(names[name])
    signature = int64(types.CPointer(uint8), types.CPointer(int64), types.CPointer(uint8))
    return machine_code.machine_code(numba.cfunc(signature)(join_records))


if __name__ == "__main__":
    CODE.save(_compile())
