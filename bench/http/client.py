"""A client over HTTP in a process of its own, like `bench.kafka.client`.

As a program, it does what it is asked on stdin, one task after another, at the server whose address is its one argument.
"""

import gc
import subprocess
import sys
from pathlib import Path

import msgspec
import uvloop

from bench.answers import say
from bench.audit import AuditFailure
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
from bench.kafka.tasks import Done, Failed
from tailrace.model.address import Address, parse_address

_ROOT = Path(__file__).resolve().parents[2]


class HttpClient:
    """This module as a child: gone when it is closed."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server.name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.http.client", str(server.http)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self, task: AnyTask) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AuditFailure(f"{self._server}: a client ended with code {self._process.wait()} in the middle of its work")
        answer: Answer = msgspec.json.decode(line, type=Answer)
        if isinstance(answer, Failed):
            raise AuditFailure(f"{self._server}: {answer.why}")
        return answer

    def ask(self, task: AnyTask) -> Answer:
        self.begin(task)
        return self.hear()


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
