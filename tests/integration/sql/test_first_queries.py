"""The first query of a server that was just started reads about what its bounds of time describe, whatever is in the topic."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import httpx
from confluent_kafka import Producer

from tailrace.model.limits import MIB
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 2_400
"""With each codec, of a kilobyte that can't be made smaller, a millisecond apart but for some that come late."""
LATE = {5_000: 4_000, 9_999: 20}
"""By offset, when it happened: much earlier than the records around it. All others are a little out of order."""


def test_a_first_query_reads_what_its_bounds_describe(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ServerProcess(folder) as server:
        times = fill(server.kafka)
        server.kill()
    for ending in ("kill", "terminate", "kill"):
        with ServerProcess(folder) as server:
            for low, high in ((0, 100), (3_500, 4_100)):
                shown, read_bytes = ask(server.url, low, high)
                assert shown == [offset for offset, time in enumerate(times) if low <= time - START_MS <= high]
                assert 0 < read_bytes < 2 * MIB, f"of {RECORDS * len(CODECS)} KB, from {low} to {high} ms"
            getattr(server, ending)()


def fill(address: str) -> Sequence[int]:
    """The times of the records, by offset."""
    random = Random(1)
    times: list[int] = []
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "batch.size": 100_000,
                "enable.idempotence": True,
            }
        )
        for _ in range(RECORDS):
            offset = len(times)
            times.append(START_MS + LATE.get(offset, offset - offset % 7))
            producer.produce("t", random.randbytes(1_000), timestamp=times[-1])
            producer.poll(0)
        assert producer.flush(60) == 0
    return times


def ask(url: str, low: int, high: int) -> tuple[list[int], float]:
    """The offsets of records between two times, counted from the start; and the bytes that were read for them."""
    text = (
        "SELECT \"offset\" FROM t WHERE timestamp BETWEEN timestamp '2023-11-14 22:13:20' + interval '%d milliseconds'"
        " AND timestamp '2023-11-14 22:13:20' + interval '%d milliseconds' ORDER BY 1"
    )
    before = metric(url, "tailrace_disk_read_bytes_total")
    answer = httpx.post(f"{url}/api/sql", json={"sql": text % (low, high)}, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    return [row[0] for row in answer.json()["rows"]], metric(url, "tailrace_disk_read_bytes_total") - before


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text.splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), 0.0)
