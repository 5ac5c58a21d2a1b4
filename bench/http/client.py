"""A client over HTTP in a process of its own.

As a program, it does what it is asked on stdin, one task after another, at the server whose address is its one argument.
"""

import gc
import sys

import msgspec
import uvloop

from bench.answers import Failed, say
from bench.http import inserting, messages, subscribing
from bench.http.server import HttpServer
from bench.http.tasks import (
    Answer,
    AnyTask,
    ConsumeMessages,
    ConsumeSteadily,
    InsertRows,
    InsertSteadily,
    PublishMessages,
    PublishSteadily,
    Subscribe,
)
from bench.http.wire import BadAnswer
from bench.kafka.tasks import Done
from bench.worker_process import WorkerProcess
from tailrace.model.address import Address, parse_address


class HttpClient(WorkerProcess[AnyTask, Answer]):
    """This module as a child."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.name, "bench.http.client", str(server.http), answers=Answer)


def _serve(address: Address) -> None:
    for line in sys.stdin.buffer:
        task: AnyTask = msgspec.json.decode(line, type=AnyTask)
        try:
            say(uvloop.run(_do(address, task)))
        except (BadAnswer, OSError, TimeoutError) as error:
            say(Failed(f"{type(task).__name__}: {error}"))
        gc.collect()


async def _do(address: Address, task: AnyTask) -> Answer:
    match task:
        case InsertRows():
            return await inserting.insert(address, task)
        case InsertSteadily():
            return await inserting.insert_steadily(address, task)
        case PublishMessages():
            return await messages.publish(address, task)
        case PublishSteadily():
            return await messages.publish_steadily(address, task)
        case ConsumeMessages():
            return await messages.consume(address, task)
        case ConsumeSteadily():
            return await messages.consume_steadily(address, task, _say_ready)
        case Subscribe():
            return await subscribing.subscribe(address, task, _say_ready)


def _say_ready() -> None:
    say(Done())


if __name__ == "__main__":
    gc.disable()  # it would look at every answer that is kept for the checking
    _serve(parse_address(sys.argv[1]))
