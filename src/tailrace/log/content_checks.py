"""Whether the records inside stored batches can be read: what every producer's batch is asked before it is stored.

A batch that an older version stored without a look may be right by its checksum and still stop every reader.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.log.data_folder import UNFINISHED, payload_digests, payload_path
from tailrace.log.frame import BatchEntry, Frame
from tailrace.model.errors import InvalidRequestError, TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.record import PayloadReference, reference_to
from tailrace.model.topic import TopicNames
from tailrace.wire.batch import read_header
from tailrace.wire.fast_record_check import compile_scan, load_scan
from tailrace.wire.payload_references import is_payload_reference, read_payload_reference
from tailrace.wire.record_check import ScanRecords, check_records, plain_scan

_MOST_BYTES = DEFAULT_LIMITS.frame_bytes
"""Of one batch without its compression. A server may be told to take larger ones than by default, but none so large."""
_WORTH_COMPILING_BYTES = 64 * MIB


def scan_for(size: int) -> ScanRecords:
    """Return the quickest walk over records for a log of so many bytes."""
    found = load_scan()
    if found is None and size >= _WORTH_COMPILING_BYTES:
        try:
            found = compile_scan()
        except (OSError, subprocess.SubprocessError):
            found = None
    return found or plain_scan


def bad_batches(frame: Frame, data: memoryview, base: int, scan: ScanRecords) -> Iterator[tuple[BatchEntry, str]]:
    """The batches of a good frame whose records can't be read, each with the reason. `base` is where `data` begins."""
    for entry in frame.entries:
        at = entry.position - base
        fault = record_fault(entry, data[at : at + entry.length], scan)
        if fault:
            yield entry, fault


def record_fault(entry: BatchEntry, batch: memoryview, scan: ScanRecords) -> str:
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


IsAlive = Callable[[PartitionId, Offset], bool]
ReportFinding = Callable[[str, str], None]
"""Where something is wrong, and what."""

_NAMED_ORPHANS = 100


class _Use(NamedTuple):
    partition: PartitionId
    offset: Offset
    reference: PayloadReference | None
    """`None` if it can't be read."""


class PayloadCheck:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uses: list[_Use] = []
        self.checked = 0

    def learn(self, frame: Frame, data: memoryview, base: int) -> None:
        """Remember what the records of a frame refer to. `base` is the position of the first byte of `data`."""
        for entry in frame.entries:
            at = entry.position - base
            batch = data[at : at + entry.length]
            if is_payload_reference(batch):
                try:
                    reference = read_payload_reference(batch, DEFAULT_LIMITS)
                except InvalidRequestError:
                    reference = None
                self._uses.append(_Use(entry.partition, entry.base_offset, reference))

    def run(self, names: TopicNames, is_alive: IsAlive, find: ReportFinding, note: Callable[[str], None]) -> None:
        """Look at all payloads, now that all records are known."""
        used: dict[PayloadReference, list[_Use]] = {}
        for use in self._uses:
            if not is_alive(use.partition, use.offset):
                continue
            if use.reference is None:
                find(_place(use, names), "its value is no reference to a payload")
            else:
                used.setdefault(use.reference, []).append(use)
        for reference, uses in used.items():
            self.checked += 1
            fault = self._fault(reference)
            if fault:
                find(
                    f"payload {reference.digest.hex()}",
                    f"{fault}; records that refer to it: {len(uses)}, {_place(uses[0], names)}",
                )
        self._note_orphans({reference.digest for reference in used}, note)

    def _fault(self, reference: PayloadReference) -> str:
        try:
            content = payload_path(self._folder, reference.digest).read_bytes()
        except FileNotFoundError:
            return "it is missing"
        except OSError as error:
            return f"it can't be read ({error.strerror})"
        if len(content) != reference.size:
            return f"it is damaged: it has {len(content)} bytes and had {reference.size}"
        return "" if reference_to(content) == reference else "it is damaged: its bytes do not have this hash"

    def _note_orphans(self, used: set[bytes], note: Callable[[str], None]) -> None:
        orphans = [digest for digest in payload_digests(self._folder) if digest not in used]
        for digest in orphans[:_NAMED_ORPHANS]:
            note(f"payload {digest.hex()} is referred to by no record; a running server removes it")
        if len(orphans) > _NAMED_ORPHANS:
            note(f"and so are {len(orphans) - _NAMED_ORPHANS} more payloads")
        for unfinished in self._folder.glob(f"*{UNFINISHED}"):
            note(f"{unfinished.name} was being written when the server stopped; the next start removes it")


def _place(use: _Use, names: TopicNames) -> str:
    return f"{names.of(use.partition)}, offset {use.offset}"
