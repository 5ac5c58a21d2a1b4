"""The segment files of a folder held against the segments that the checkpoint knows: which belong to the log; what is wrong.

Only names and sizes are looked at, and nothing is changed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tailrace.log.recovery import SegmentFile
from tailrace.log.segment import SegmentFolder
from tailrace.log.usage import SegmentUsage
from tailrace.model.ids import Position


class Inventory(NamedTuple):
    files: list[tuple[SegmentFile, SegmentUsage | None]]
    """Those of the log, in order, each with what the checkpoint knows of it."""
    leftovers: list[Path]
    """Files that the cleaner has replaced, or was about to put in another's place, when the server stopped."""
    faults: list[tuple[str, str]]
    """The name of a file, and what is wrong with it."""


def take_inventory(segments: SegmentFolder, usages: Mapping[Position, SegmentUsage]) -> Inventory:
    found = Inventory([], [], [])
    active = max((base for base, usage in usages.items() if not usage.size), default=Position(0))
    for path, base, generation in segments.list_files():
        usage = usages.get(Position(base))
        if (usage is not None and usage.generation != generation) or (usage is None and base < active):
            found.leftovers.append(path)
            continue
        # Without a checkpoint the cleaner does nothing: no later generations, and no log that does not begin at 0.
        if usage is None and (generation or (not usages and base and not found.files)):
            found.faults.append((path.name, "the state that belongs to it is missing"))
        if usage is not None and usage.size and path.stat().st_size != usage.size:
            found.faults.append((path.name, f"it has {path.stat().st_size} bytes and had {usage.size} when it was closed"))
        found.files.append((SegmentFile(path, base, generation), usage))
    there = {file.base for file, _ in found.files}
    for base, usage in usages.items():
        if base not in there:
            found.faults.append((segments.path(base, usage.generation).name, "it is missing"))
    return found
