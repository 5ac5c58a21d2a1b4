"""The frames of a data folder, for a person to read. Works on a folder that a server has open, too."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tailrace.log.folder import LOG_FOLDER, STATE_FOLDER, require_data_folder
from tailrace.log.frame import BadFrameError, Frame, read_effects, read_frame
from tailrace.log.recovery import frames_behind, mapped
from tailrace.log.segment import HEADER_BYTES, SegmentFolder, read_header, salt_of
from tailrace.log.state import StateDb, saved_topics
from tailrace.model.changes import Changes
from tailrace.model.errors import CorruptionError, TailraceError
from tailrace.model.ids import TopicId


class DumpedBatch(msgspec.Struct, frozen=True):
    topic_id: TopicId
    partition: int
    base_offset: int
    cursor: int
    records: int
    max_timestamp: int
    bytes: bytes


class DumpedFrame(msgspec.Struct, frozen=True):
    """One frame, or a place where one should be: then `fault` says why there is none."""

    segment: str
    position: int
    size: int = 0
    synced: int = 0
    cursor: int = 0
    hlc: int = 0
    batches: list[DumpedBatch] = []
    changes: Changes = Changes()
    fault: str = ""


def frames(folder: Path, from_cursor: int = 0) -> Iterator[DumpedFrame]:
    """Every frame in order, beginning with the one that holds `from_cursor`."""
    require_data_folder(folder)
    has_begun = not from_cursor
    for path, base, generation in SegmentFolder(folder / LOG_FOLDER, 1).list_files():
        with mapped(path) as data:
            try:
                header = bytes(data[:HEADER_BYTES])
                read_header(path, header, base, generation)
            except CorruptionError as error:
                yield DumpedFrame(path.name, base, fault=str(error))
                continue
            salt = salt_of(header)
            at = HEADER_BYTES
            while at < len(data):
                try:
                    frame = read_frame(data, at, base + at, salt)
                except BadFrameError as error:
                    yield DumpedFrame(path.name, base + at, fault=str(error))
                    later = next(frames_behind(data, at, base, salt), None)
                    at = later.position - base if later else len(data)
                    continue
                has_begun = has_begun or frame.end_cursor > from_cursor
                if has_begun:
                    yield _dumped(path.name, frame, data, base)
                at += frame.size


def topics_of(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """The topics as the last checkpoint has them: the frames that made them may be gone.

    Beside a running server they may be out of reach for a moment. Then there are none.
    """
    if not (folder / STATE_FOLDER / "CURRENT").exists():
        return
    with suppress(TailraceError):
        state = StateDb(folder / STATE_FOLDER, read_only=True)
        try:
            yield from list(saved_topics(state))
        finally:
            state.close()


def _dumped(segment: str, frame: Frame, data: memoryview, base: int) -> DumpedFrame:
    batches = [
        DumpedBatch(
            entry.partition.topic_id,
            entry.partition.number,
            entry.base_offset,
            entry.cursor,
            entry.records,
            entry.max_timestamp,
            bytes(data[entry.position - base : entry.position - base + entry.length]),
        )
        for entry in frame.entries
    ]
    changes = read_effects(frame.effects, frame.effect_count)
    return DumpedFrame(segment, frame.position, frame.size, frame.synced, frame.cursor, frame.hlc, batches, changes)
