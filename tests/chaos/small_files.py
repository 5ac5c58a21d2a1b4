"""A program whose files may not grow beyond a limit for a while. It prints the outcomes of its commits."""

import json
import resource
import sys
from pathlib import Path

from tailrace.model.commit import Changes
from tailrace.model.errors import TailraceError
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import KIB
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append
from tests.support.observed import fetch_all

A0 = PartitionId(TopicId(1), 0)
LIMIT_BYTES = 64 * KIB


def main() -> None:
    store = EmbeddedStore.open(Path(sys.argv[1]))
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    values: list[str] = []
    outcomes: set[str] = set()
    refused = 0

    def write(count: int) -> None:
        nonlocal refused
        for _ in range(count):
            value = f"{len(values)}".ljust(1000, ".")
            try:
                store.commit(Changes(appends=[append(A0, value.encode())]))
            except TailraceError as error:
                refused += 1
                outcomes.add(error.outcome)
            else:
                values.append(value)

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    write(100)
    acked_before = len(values)
    still_readable = [record.value.decode() for record in fetch_all(store, A0)] == values
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    write(100)
    store.close()
    said = {
        "refused": refused,
        "outcomes": sorted(outcomes),
        "acked_before": acked_before if still_readable else 0,
        "acked_after": len(values),
        "values": values,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
