"""A client of the soak in a process of its own, to be killed at any moment. `tests.support.soak` runs it.

Its arguments are its role, the server's address, and the number of its first message or the cursor to go on after. It says
what it does as lines of JSON, each before it could matter, and ends when its input does.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from tailrace.client import Client, LateReceiptError, QueueEvent, QueueSubscription, TailraceError

EVENTS, JOBS = "soak.events", "soak.jobs"
GROUP, WORKERS = "soak-group", "soak-workers"
POISON = 40
"""Every so many jobs there is one that nobody can do."""
MAX_DELIVERIES = 5

_AT_ONCE = 20
_PAUSE_SECONDS = 0.05
_QUICK: dict[str, Any] = {"retry_backoff": 20, "retry_backoff_max": 200, "request_timeout": 5_000, "poll_timeout": 200}


def say(*what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def publish(client: Client, first: int, is_ending: Callable[[], bool]) -> None:
    with client.publisher(retry_backoff=20, retry_backoff_max=200, request_timeout=5_000) as publisher:
        numbers = count(first)
        while not is_ending():
            sent = []
            for number in (next(numbers) for _ in range(_AT_ONCE)):
                say("sending", number)
                sent += [(topic, number, publisher.send(topic, number, key=str(number % 7))) for topic in (EVENTS, JOBS)]
            for topic, number, delivery in sent:
                try:
                    result = delivery.result()
                except TailraceError as error:
                    say("failed", number, error.outcome)
                else:
                    say("published", topic, number, result.partition_id, result.offset)
            time.sleep(_PAUSE_SECONDS)


def consume(client: Client, _: int, is_ending: Callable[[], bool]) -> None:
    settings = {"heartbeat_interval": 500, "session_timeout": 6_000, "auto_commit_interval": 200, **_QUICK}
    with client.consumer(topic=EVENTS, group_id=GROUP, **settings) as consumer:
        while not is_ending():
            for record in consumer.poll():
                say("seen", record.partition_id, record.offset, record.value)
                consumer.mark_processed(record)


def follow(client: Client, after: int, is_ending: Callable[[], bool]) -> None:
    with client.subscriber().subscribe("soak.*", after) as events:
        for event in events:
            say("followed", event.cursor, event.topic_name, event.value)
            if is_ending():
                return


def work(client: Client, _: int, is_ending: Callable[[], bool]) -> None:
    settings = {"visibility_timeout": 3_000, "max_deliveries": MAX_DELIVERIES, "max_poll_records": _AT_ONCE, **_QUICK}
    with client.subscriber().subscribe_queue(JOBS, WORKERS, **settings) as queue:
        while not is_ending():
            for event in queue.poll():
                _settle(queue, event)


def _settle(queue: QueueSubscription, event: QueueEvent) -> None:
    number = event.value
    is_poison = number % POISON == 0
    say("nacking" if is_poison else "acking", number)
    try:
        if is_poison:
            queue.nack(event, reason="poison")
        else:
            queue.ack(event)
    except LateReceiptError:
        say("late", number)
    except TailraceError as error:
        say("unsettled", number, error.outcome)
    else:
        say("nacked" if is_poison else "acked", number)


def _until_input_ends(ending: threading.Event) -> None:
    sys.stdin.read()
    ending.set()


def main() -> None:
    role, url, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ending = threading.Event()
    threading.Thread(target=_until_input_ends, args=(ending,), daemon=True).start()
    roles = {"publisher": publish, "consumer": consume, "follower": follow, "worker": work}
    with Client(url) as client:
        roles[role](client, first, ending.is_set)
    say("ended")


if __name__ == "__main__":
    main()
