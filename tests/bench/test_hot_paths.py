"""Samples are summed by the function in which they were taken, not by its callers."""

from bench.figures import Share
from bench.hot_paths import profile_of

STACKS = """main (tailrace/server.py:1);_send (tailrace/kafka/connection.py:20) 6
main (tailrace/server.py:1);_send (tailrace/kafka/connection.py:20);pack (tailrace/wire/batch.py:7) 3
main (tailrace/server.py:1);wait (selectors.py:3) 1
"""


def test_self_time_is_shown_by_package_and_by_function() -> None:
    profile = profile_of("produce", "kafka", STACKS, 40)

    assert profile.summary == "produce: Python's lock was held at 10 of 40 looks; self time"
    assert profile.rooms == [Share("tailrace.kafka", 0.6), Share("tailrace.wire", 0.3), Share("selectors", 0.1)]
    assert profile.functions[0] == Share("_send (tailrace/kafka/connection.py)", 0.6)


def test_functions_that_hardly_matter_are_left_out() -> None:
    profile = profile_of("produce", "kafka", "a (tailrace/log/x.py:1) 999\nb (tailrace/log/x.py:9) 1\n", 1_000)

    assert [share.name for share in profile.functions] == ["a (tailrace/log/x.py)"]


def test_a_daemon_that_waits_does_not_count() -> None:
    profile = profile_of("router", "pipeline", "<module> (daemon.py:1);manager (daemon.py:9) 70\nmain (worker.py:1) 30\n", 100)

    assert [(share.name, share.share) for share in profile.functions] == [("main (worker.py)", 1.0)]
