"""Whether the records inside stored batches can be read: what every producer's batch is asked before it is stored.

A batch that an older version stored without a look may be right by its checksum and still stop every reader.
"""

import subprocess
from collections.abc import Iterator

from tailrace.log.frame import Entry, Frame
from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.wire.batch import read_header
from tailrace.wire.machine_code import Scan, compile_scan, load_scan, plain_scan
from tailrace.wire.record_check import check_records

_MOST_BYTES = DEFAULT_LIMITS.frame_bytes
"""Of one batch without its compression. A server may be told to take larger ones than by default, but none so large."""
_WORTH_COMPILING_BYTES = 64 * MIB


def scan_for(size: int) -> Scan:
    """Return the quickest walk over records for a log of so many bytes."""
    found = load_scan()
    if found is None and size >= _WORTH_COMPILING_BYTES:
        try:
            found = compile_scan()
        except (OSError, subprocess.SubprocessError):
            found = None
    return found or plain_scan


def bad_batches(frame: Frame, data: memoryview, base: int, scan: Scan) -> Iterator[tuple[Entry, str]]:
    """The batches of a good frame whose records can't be read, each with the reason. `base` is where `data` begins."""
    for entry in frame.entries:
        at = entry.position - base
        fault = record_fault(entry, data[at : at + entry.length], scan)
        if fault:
            yield entry, fault


def record_fault(entry: Entry, batch: memoryview, scan: Scan) -> str:
    """What is wrong inside a stored batch, or nothing."""
    header = read_header(batch)
    if header.records != entry.records or header.last_offset_delta != entry.records - 1:
        return (
            f"the batch counts {header.records} records and {header.last_offset_delta + 1} offsets, its frame {entry.records}"
        )
    try:
        check_records(batch, header, _MOST_BYTES, scan)
    except TailraceError as error:
        return str(error)
    return ""
