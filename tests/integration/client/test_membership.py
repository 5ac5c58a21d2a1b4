"""What a member of a group does keeps it a member, however slow the network is with one answer."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from tailrace.client import TopicConsumer
from tests.integration.client.test_consumer import fill
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.proxy import FaultyProxy

SESSION_MS = 1_500
QUICK: dict[str, Any] = {"session_timeout": SESSION_MS, "heartbeat_interval": 100, "retry_backoff": 10, "poll_timeout": 100}


def consumer_of(url: str, topic: str, group: str, **settings: Any) -> TopicConsumer:
    return TopicConsumer(url, {"topic": topic, "group_id": group, **QUICK, **settings})


def members_of(api: Api, group: str) -> list[str]:
    return [member["member_id"] for member in api.ask(f"/api/groups/{group}")["members"]]


@contextmanager
def hanging(proxy: FaultyProxy, what: bytes) -> Iterator[list[bytes]]:
    """Answers to these requests do not come, and to nothing else. Which requests were answered, or not."""
    asked: list[bytes] = []

    def hangs(request: bytes) -> bool:
        asked.append(request.split()[1])
        return what in request

    proxy.hangs = hangs
    try:
        yield asked
    finally:
        proxy.hangs = lambda _: False
        proxy.reset_connections()


def outlasts_its_session(asked: list[bytes]) -> None:
    """Wait for as many heartbeats as take longer than a session."""
    before = len(asked)
    eventually(
        lambda: sum(path.endswith(b"/heartbeat") for path in asked[before:]) * 100 > 1.5 * SESSION_MS, "heartbeats go on"
    )


def test_a_commit_by_interval_that_hangs_does_not_cost_the_membership(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    group = f"g{uuid4().hex[:8]}"
    with consumer_of(proxy.url, topic, group, auto_commit_interval=50) as consumer:
        records = consumer.poll(timeout=30)
        before = members_of(api, group)
        with hanging(proxy, b"/commit") as asked:
            consumer.mark_processed(records[0])
            eventually(lambda: any(path.endswith(b"/commit") for path in asked), "the commit is on its way")
            outlasts_its_session(asked)
            assert members_of(api, group) == before


def test_a_commit_that_is_waited_for_and_hangs_does_not_cost_the_membership(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    group = f"g{uuid4().hex[:8]}"
    with consumer_of(proxy.url, topic, group, auto_commit_interval=60_000) as consumer:
        records = consumer.poll(timeout=30)
        before = members_of(api, group)
        with hanging(proxy, b"/commit") as asked:
            consumer.mark_processed(records[0])
            committing = threading.Thread(target=consumer.commit)
            committing.start()
            eventually(lambda: any(path.endswith(b"/commit") for path in asked), "the commit is on its way")
            consumer.commit_async()
            outlasts_its_session(asked)
            assert members_of(api, group) == before
        committing.join()


def test_the_commit_of_a_close_that_hangs_does_not_cost_the_membership(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    group = f"g{uuid4().hex[:8]}"
    consumer = consumer_of(proxy.url, topic, group, auto_commit_interval=60_000)
    records = consumer.poll(timeout=30)
    before = members_of(api, group)
    with hanging(proxy, b"/commit") as asked:
        consumer.mark_processed(records[0])
        closing = threading.Thread(target=consumer.close)
        closing.start()
        eventually(lambda: any(path.endswith(b"/commit") for path in asked), "the commit is on its way")
        outlasts_its_session(asked)
        assert members_of(api, group) == before
    closing.join()
    assert members_of(api, group) == []


def test_a_member_that_works_for_long_stays_one_while_the_group_shares_out_anew(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    group = f"g{uuid4().hex[:8]}"
    with consumer_of(url, topic, group) as slow, consumer_of(url, topic, group) as newcomer:
        slow.poll(timeout=30)
        (member,) = members_of(api, group)
        joining = threading.Thread(target=newcomer.poll)
        joining.start()
        eventually(lambda: slow._offsets.needs_join, "the slow one hears that the group rebalances")
        worked_until = time.monotonic() + 2 * SESSION_MS / 1000
        eventually(lambda: time.monotonic() > worked_until, "it works for longer than a session, and does not poll")
        assert member in members_of(api, group)
        slow.poll()
        joining.join()


def test_answers_slower_than_the_interval_of_heartbeats_are_heard(proxy: FaultyProxy, url: str, api: Api, topic: str) -> None:
    group = f"g{uuid4().hex[:8]}"
    with consumer_of(proxy.url, topic, group, session_timeout=20_000) as far:
        far.poll()
        proxy.delay_seconds = 0.1
        with consumer_of(url, topic, group, session_timeout=20_000) as near:
            joining = threading.Thread(target=near.poll)
            joining.start()
            eventually(lambda: far._offsets.needs_join, "the far one hears that the group rebalances")
            far.poll()
            joining.join()


def test_a_heartbeat_that_hangs_leaves_time_for_another(proxy: FaultyProxy, api: Api, topic: str) -> None:
    group = f"g{uuid4().hex[:8]}"
    with consumer_of(proxy.url, topic, group, session_timeout=3_000, heartbeat_interval=2_000) as consumer:
        consumer.poll()
        before = members_of(api, group)
        beats: list[float] = []

        def first_hangs(request: bytes) -> bool:
            if b"/heartbeat" not in request:
                return False
            beats.append(time.monotonic())
            return len(beats) == 1

        proxy.hangs = first_hangs
        eventually(lambda: len(beats) == 2, "another heartbeat")
        assert beats[1] - beats[0] < 1, "the session would have ended a second after the first"
        assert members_of(api, group) == before
