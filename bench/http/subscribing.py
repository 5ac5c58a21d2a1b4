"""Many subscribers of the same messages, in one process."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

from bench.http.tasks import Subscribe
from bench.http.wire import BadAnswer, Follower, request
from bench.kafka.tasks import Delays
from tailrace.model.address import Address

_EVENT = re.compile(rb'id: (\d+)\ndata: [^\n]*?"n":(\d+),"sent":([\d.e-]+)')
_CONNECTED_AT_ONCE = 50
_PATIENCE_SECONDS = 60.0


async def subscribe(address: Address, task: Subscribe, on_ready: Callable[[], None]) -> Delays:
    loop = asyncio.get_running_loop()
    left = task.subscribers * task.messages
    all_came = asyncio.Event()

    def count(events: int) -> None:
        nonlocal left
        left -= events
        if left <= 0:
            all_came.set()

    asked = request(address, "GET", f"/api/subscribe?pattern={task.pattern}", accept="text/event-stream")
    followers: list[Follower] = []
    while len(followers) < task.subscribers:
        some = min(_CONNECTED_AT_ONCE, task.subscribers - len(followers))
        opened = [await loop.create_connection(lambda: Follower(asked, count), *address) for _ in range(some)]
        followers += [follower for _, follower in opened]
        await asyncio.wait_for(asyncio.gather(*(follower.is_open for follower in followers[-some:])), _PATIENCE_SECONDS)
    on_ready()
    try:
        await asyncio.wait_for(all_came.wait(), _PATIENCE_SECONDS)
    except TimeoutError:
        raise BadAnswer(f"{left} of {task.subscribers * task.messages} events did not come") from None
    delays: list[float] = []
    for follower in followers:
        follower.close()
        delays += _delays(follower, task.messages)
    return Delays(delays)


def _delays(follower: Follower, messages: int) -> list[float]:
    ends = list(accumulate(len(piece) for _, piece in follower.pieces))
    delays, cursors, numbers = [], [], []
    for found in _EVENT.finditer(b"".join(piece for _, piece in follower.pieces)):
        cursors.append(int(found[1]))
        numbers.append(int(found[2]))
        delays.append(follower.pieces[bisect_left(ends, found.end())][0] - float(found[3]))
    # Publishers are not in step with each other, so the numbers may come in another order than they left; cursors never.
    if sorted(numbers) != list(range(messages)) or sorted(cursors) != cursors:
        raise BadAnswer(f"a subscriber got {len(numbers)} events, not all {messages} once and in order")
    return delays
