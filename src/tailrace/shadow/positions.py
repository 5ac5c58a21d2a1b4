"""How far a partition is copied, and where its records lie in the target.

The position is an offset that a group of the target has committed in the transaction of the records before it. Its metadata
says which topics these are, and holds pairs of offsets, dense where the copy has come to and ever sparser behind it, so that
offsets of groups can be translated after a restart too.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tailrace.shadow.admin import CommittedPosition

_FORMAT = "tailrace1"
_PAIRS = 24
"""Pairs that are kept in the metadata. They take at most 1,500 of the 4,096 characters that Kafka allows."""
MOST_ANCHORS = 1_000
"""Anchors of a partition in memory. Beyond it the older half is thinned."""
_STEP = 1.5
"""By how much the distance to the end grows from pair to pair, at least."""


class Anchor(NamedTuple):
    """The first record of the origin from `origin` on lies at `target`; so do the next ones, as far as `records` go."""

    origin: int
    target: int
    records: int = 0
    """How many offsets from `origin` on have a record each, without a gap in the target."""


class OffsetMap:
    """Where records of a partition lie in the target."""

    def __init__(self, anchors: Iterable[Anchor] = (), most: int = MOST_ANCHORS) -> None:
        self._anchors = sorted(anchors)
        self.most = most

    def __iter__(self) -> Iterator[Anchor]:
        return iter(self._anchors)

    def add(self, origin: int, target: int, records: int) -> None:
        """Learn where records lie that are behind all others."""
        anchors = self._anchors
        if anchors:
            last = anchors[-1]
            if last.records and (last.origin + last.records, last.target + last.records) == (origin, target) and records:
                anchors[-1] = last._replace(records=last.records + records)
                return
        anchors.append(Anchor(origin, target, records))
        self._thin()

    def learn(self, origin: int, target: int) -> None:
        """Learn where a record lies that may be before others."""
        insort(self._anchors, Anchor(origin, target))
        self._thin()

    def _thin(self) -> None:
        anchors = self._anchors
        if len(anchors) > self.most:
            half = len(anchors) // 2
            # The first one says where the copy began.
            anchors[1:half] = anchors[1:half:2]

    def before(self, origin: int) -> Anchor | None:
        """Return the last anchor at or before an offset of the origin."""
        at = bisect_right(self._anchors, (origin, float("inf")))
        return self._anchors[at - 1] if at else None

    def before_target(self, target: int) -> Anchor | None:
        """Return the last anchor at or before an offset of the target."""
        at = bisect_right(self._anchors, target, key=lambda anchor: anchor.target)
        return self._anchors[at - 1] if at else None

    @property
    def first(self) -> Anchor | None:
        return self._anchors[0] if self._anchors else None

    def pairs(self) -> Sequence[Anchor]:
        """Return a few anchors: the last one, the first one, and ever fewer between them."""
        anchors = self._anchors
        if not anchors:
            return ()
        end = anchors[-1].origin + anchors[-1].records
        step = _STEP
        while True:
            kept = [anchors[-1]]
            for anchor in reversed(anchors[1:-1]):
                if end - anchor.origin >= step * max(1, end - kept[-1].origin):
                    kept.append(anchor)
            if len(anchors) > 1:
                kept.append(anchors[0])
            if len(kept) <= _PAIRS:
                return kept[::-1]
            step *= 2


class StoredPosition(NamedTuple):
    """What is committed for a partition."""

    offset: int
    """The offset of the origin from which on nothing is copied yet."""
    origin_id: str
    target_id: str
    """The ids of the two topics."""
    target_end: int
    """The offset behind the last record that was copied; 0 if there is none."""
    start: int
    """The first offset of the origin when the copy began."""
    pairs: Sequence[Anchor] = ()


def encode_position(position: StoredPosition) -> CommittedPosition:
    """Return what is committed. Metadata are text, so that Kafka's tools can show them."""
    pairs = " ".join(f"{pair.origin}:{pair.target}:{pair.records}" for pair in position.pairs)
    parts = (_FORMAT, position.origin_id, position.target_id, str(position.target_end), str(position.start), pairs)
    return CommittedPosition(position.offset, ";".join(parts))


def decode_position(committed: CommittedPosition) -> StoredPosition | None:
    """Return a position, or `None` if somebody else has committed something in the group."""
    try:
        form, origin_id, target_id, target_end, start, pairs = committed.metadata.split(";")
        if form != _FORMAT:
            return None
        anchors = [Anchor(*map(int, pair.split(":"))) for pair in pairs.split()]
        return StoredPosition(committed.offset, origin_id, target_id, int(target_end), int(start), anchors)
    except (TypeError, ValueError):
        return None
