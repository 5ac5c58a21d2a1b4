"""Power cuts during a survey: saved times belong to records that exist, and are right."""

import random
import time
from pathlib import Path

import pytest

from tailrace.broker.times.oldest_times import SavedTimes
from tailrace.model.ids import Offset
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.batch import read_header
from tailrace.wire.records import decode_batch
from tests.chaos.survey_writer import LIMITS
from tests.support.child import WriterProcess
from tests.support.history import Note
from tests.support.powercut import cut_power, make_image, mounted, why_no_mounts

CUTS = 5


def judge(folder: Path) -> tuple[int, int]:
    """Return how many runs are known, and where the partition ends."""
    store = EmbeddedStore.open(folder, limits=LIMITS)
    try:
        (partition,) = store.partitions()
        start, end = store.bounds(partition)
        times: dict[int, int] = {}
        offset = start
        while offset < end:
            for batch in store.fetch(partition, offset, 1 << 20).batches:
                times.update((record.offset, record.timestamp) for record in decode_batch(batch, LIMITS))
                head = read_header(batch)
                offset = Offset(head.base_offset + head.records)
        runs = list(SavedTimes(store).runs(partition))
        for run in runs:
            assert run.end <= end, f"{run}, and the partition ends at {end}"
            late = [offset for offset in range(max(run.start, start), run.end) if times[offset] < run.oldest_ms]
            assert not late, f"{run}, and there are older records at {late}"
        return len(runs), end
    finally:
        store.close()


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
def test_no_power_cut_leaves_times_of_lost_records(tmp_path: Path, chaos_seed: int) -> None:
    moments = random.Random(chaos_seed)
    image = make_image(tmp_path / "disk-0.img")
    known = lost = 0
    for run in range(1, CUTS + 1):
        with mounted(image, tmp_path / f"run-{run}") as disk:
            writer = WriterProcess(disk / "data", "--run", str(run), module="tests.chaos.survey_writer")
            writer.wait_until(lambda: writer.events.count(Note("surveyed")) > 5, "surveys")  # noqa: B023  called at once
            time.sleep(moments.uniform(0.05, 0.5))
            writer.stop()
            image = cut_power(image, tmp_path / f"disk-{run}.img")
            writer.kill()
            _, written = judge(disk / "data")
        with mounted(image, tmp_path / f"after-{run}") as disk:
            runs, end = judge(disk / "data")
        known += runs
        lost += written - end
    assert known, "nothing was surveyed before a cut"
    assert lost, "no cut took anything away"
