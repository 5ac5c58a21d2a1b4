"""What a reader of committed records is shown of the batches that lie below the last stable offset."""

from collections import deque
from collections.abc import Iterator, Sequence

from tailrace.model.changes import Buffer
from tailrace.model.ids import ProducerId
from tailrace.model.transaction import AbortedTransaction
from tailrace.wire.batch import read_header
from tailrace.wire.control import Marker, decode_marker


def committed_batches(batches: Sequence[Buffer], aborted: Sequence[AbortedTransaction]) -> Iterator[Buffer]:
    """The batches without markers and without those of aborted transactions."""
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    skipped: set[int] = set()
    for batch in batches:
        header = read_header(batch)
        while upcoming and upcoming[0].first_offset <= header.base_offset:
            skipped.add(upcoming.popleft().producer_id)
        if header.is_control:
            if decode_marker(batch) is Marker.ABORT:
                skipped.discard(ProducerId(header.producer_id))
        elif not (header.is_transactional and header.producer_id in skipped):
            yield batch
