"""Offline checks of what frames hold: the records inside batches, and the payloads that they refer to.

Records are checked as a producer's batch is checked before it is stored. A batch that an older version stored unchecked may
have a correct checksum and still stop every reader.

Every record that refers to a payload must find it, intact. A payload that no record refers to is no fault: a crash leaves it
behind, and a running server removes it.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tailrace.log.data_folder import UNFINISHED, payload_digests, payload_path
from tailrace.log.frame import BatchEntry, Frame
from tailrace.log.index import describe_partition
from tailrace.model.commit import UNKNOWN_TIMESTAMP
from tailrace.model.errors import InvalidRequestError, TailraceError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.record import PayloadReference, reference_to
from tailrace.model.topic import TopicNames
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, read_header
from tailrace.wire.fast_record_check import compile_scan, load_scan
from tailrace.wire.payload_references import is_payload_reference, read_payload_reference
from tailrace.wire.record_check import ScanRecords, check_records, plain_scan

_MAX_BATCH_BYTES = DEFAULT_LIMITS.frame_bytes
"""Of one decompressed batch. A server can be configured to accept larger batches than by default, but none this large."""
_WORTH_COMPILING_BYTES = 64 * MIB
_MAX_LISTED_ORPHANS = 100

IsAlive = Callable[[PartitionId, Offset], bool]
ReportFinding = Callable[[str, str], None]
"""Called with where something is wrong, and what."""


def scan_for(size: int) -> ScanRecords:
    """Return the fastest record scan that is worth loading for a log of this size."""
    found = load_scan()
    if found is None and size >= _WORTH_COMPILING_BYTES:
        try:
            found = compile_scan()
        except (OSError, subprocess.SubprocessError):
            found = None
    return found or plain_scan


def bad_batches(frame: Frame, data: memoryview, base: int, scan: ScanRecords) -> Iterator[tuple[BatchEntry, str]]:
    """Yield the batches of a good frame whose records can't be read, or can't be found by their time, each with the reason.

    `base` is where `data` begins.
    """
    for entry in frame.entries:
        at = entry.position - base
        batch = data[at : at + entry.length]
        fault, oldest = _examine(entry, batch, scan)
        if not fault and oldest < entry.oldest_timestamp:
            fault = f"a record has the timestamp {oldest}, but according to its frame none is before {entry.oldest_timestamp}"
        if fault:
            yield entry, fault


def record_fault(entry: BatchEntry, batch: memoryview, scan: ScanRecords) -> str:
    """Return what is wrong inside a stored batch, or an empty string."""
    return _examine(entry, batch, scan)[0]


def _examine(entry: BatchEntry, batch: memoryview, scan: ScanRecords) -> tuple[str, int]:
    """Return what is wrong inside a stored batch, or an empty string and the oldest timestamp that readers see."""
    header = read_header(batch)
    if header.last_offset_delta != entry.records - 1 or not 0 < header.records <= entry.records:
        return (
            f"the batch has {header.records} records and {header.last_offset_delta + 1} offsets,"
            f" but {entry.records} according to its frame"
        ), UNKNOWN_TIMESTAMP
    try:
        oldest, _ = check_records(batch, header, _MAX_BATCH_BYTES, scan)
    except TailraceError as error:
        return str(error), UNKNOWN_TIMESTAMP
    return "", header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else oldest


class _PayloadUse(NamedTuple):
    """A record that refers to a payload."""

    partition: PartitionId
    offset: Offset
    reference: PayloadReference | None
    """`None` if it can't be decoded."""


class PayloadCheck:
    """Learns from all frames which payloads are referred to, then checks them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uses: list[_PayloadUse] = []
        self.checked = 0

    def learn(self, frame: Frame, data: memoryview, base: int) -> None:
        """Remember which payloads the records of a frame refer to. `base` is the position of the first byte of `data`."""
        for entry in frame.entries:
            at = entry.position - base
            batch = data[at : at + entry.length]
            if is_payload_reference(batch):
                try:
                    reference = read_payload_reference(batch, DEFAULT_LIMITS)
                except InvalidRequestError:
                    reference = None
                self._uses.append(_PayloadUse(entry.partition, entry.base_offset, reference))

    def run(self, names: TopicNames, is_alive: IsAlive, find: ReportFinding, note: Callable[[str], None]) -> None:
        """Check all payloads, once all records are known."""
        used: dict[PayloadReference, list[_PayloadUse]] = {}
        for use in self._uses:
            if not is_alive(use.partition, use.offset):
                continue
            if use.reference is None:
                find(_describe(use, names), "the value is not a valid reference to a payload")
            else:
                used.setdefault(use.reference, []).append(use)
        for reference, uses in used.items():
            self.checked += 1
            fault = self._fault(reference)
            if fault:
                find(
                    f"payload {reference.digest.hex()}",
                    f"{fault}; records that refer to it: {len(uses)}, the first at {_describe(uses[0], names)}",
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
            return f"it is damaged: it has {len(content)} bytes instead of {reference.size}"
        return "" if reference_to(content) == reference else "it is damaged: its content does not have this hash"

    def _note_orphans(self, used: set[bytes], note: Callable[[str], None]) -> None:
        orphans = [digest for digest in payload_digests(self._folder) if digest not in used]
        for digest in orphans[:_MAX_LISTED_ORPHANS]:
            note(f"payload {digest.hex()} is not referred to by any record; a running server removes it")
        if len(orphans) > _MAX_LISTED_ORPHANS:
            note(f"{len(orphans) - _MAX_LISTED_ORPHANS} more payloads are not referred to by any record")
        for unfinished in self._folder.glob(f"*{UNFINISHED}"):
            note(f"{unfinished.name} was being written when the server stopped; the next start removes it")


def _describe(use: _PayloadUse, names: TopicNames) -> str:
    return f"{describe_partition(use.partition, names)}, offset {use.offset}"
