"""What Kafka's own tools say is read right, and a server's files leave the page cache."""

import errno
import os
from pathlib import Path

import pytest

from bench.kafka.java_tools import read_speed, sent_speed
from bench.peers.servers import PeerFailure
from bench.workspace import forget_files
from tailrace.log.page_cache import new_buffer, read_cached

SENT = """\
482545 records sent, 96509.0 records/sec (92.04 MB/sec), 2.3 ms avg latency, 233.0 ms max latency.
1000000 records sent, 98231.8 records/sec (100.00 MB/sec), 1.87 ms avg latency, 233.00 ms max latency, 1 ms 50th.
"""
READ = (
    "2026-11-19 03:40:01:017, 2026-11-19 03:40:04:721,"
    " 953.6743, 257.4714, 1000000, 269978.4017, 3161, 543, 500.0000, 1841620.6\n"
)


def test_the_last_line_of_a_producer_counts() -> None:
    assert sent_speed(SENT, 1_000_000) == pytest.approx(104.8576)


@pytest.mark.parametrize("said", [SENT.replace("1000000", "999999"), "", "org.apache.kafka.common.errors.TimeoutException"])
def test_a_producer_that_did_not_send_everything_fails(said: str) -> None:
    with pytest.raises(PeerFailure, match="did not send 1000000 records"):
        sent_speed(said, 1_000_000)


def test_a_consumer_is_timed_from_the_assignment_of_its_partitions() -> None:
    assert read_speed(READ, 1_000_000) == pytest.approx(524.288)


@pytest.mark.parametrize(
    "said", [READ.replace("1000000", "999999"), "", "WARNING: Exiting before consuming the expected number"]
)
def test_a_consumer_that_did_not_read_everything_fails(said: str) -> None:
    with pytest.raises(PeerFailure, match="did not read 1000000 records"):
        read_speed(said, 1_000_000)


def test_files_leave_the_page_cache_and_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "data" / "segment"
    file.parent.mkdir()
    content = os.urandom(1 << 20)
    file.write_bytes(content)
    forget_files(tmp_path)
    with file.open("rb") as opened:
        buffer = new_buffer(len(content))
        try:
            # A file system without a disk keeps what it has.
            assert not read_cached(opened.fileno(), 0, buffer) or buffer == content
        except OSError as error:
            assert error.errno == errno.EOPNOTSUPP
    assert file.read_bytes() == content
