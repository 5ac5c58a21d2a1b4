"""Nobody who does something large holds up those who do something small: real clients beside a real server under load.

The bounds here leave room for a busy machine; `make bench` is where figures are measured.
"""

import selectors
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from confluent_kafka import Producer

from tests.integration.topics import create
from tests.support.latency import Latencies, measured, producing, publishing
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SMALL_SECONDS = 1.0
"""What a small request may take at most, beside whatever load, on a machine that runs other tests too."""


def test_publishers_do_not_wait_for_subscribers_far_behind(server: ServerProcess) -> None:
    create(server.url, "far.behind")
    create(server.url, "small")
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(10_000):
        producer.produce("far.behind", b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    with producing(server, "small") as produce, publishing(server, "small") as publish:
        with following(server, "far.*", subscribers=100):
            assert_small(measured({"produce": produce, "publish": publish}, 100))


def assert_small(latencies: Mapping[str, Latencies]) -> None:
    for name, found in latencies.items():
        assert found.at(0.99) < SMALL_SECONDS, f"{name}: {found}"


@contextmanager
def following(server: ServerProcess, pattern: str, subscribers: int) -> Iterator[None]:
    """Subscribers from the beginning of the log, which take all that they are sent until the block ends."""
    address = urlsplit(server.url)
    head = f"GET /api/subscribe?pattern={pattern}&cursor=beginning HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
    is_over = threading.Event()

    def take(selector: selectors.BaseSelector) -> None:
        while not is_over.is_set():
            for key, _ in selector.select(0.1):
                key.fileobj.recv(65536)  # type: ignore[union-attr]

    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(subscribers):
            each = stack.enter_context(socket.create_connection((address.hostname, address.port)))
            each.sendall(head.encode())
            selector.register(each, selectors.EVENT_READ)
        thread = threading.Thread(target=take, args=(selector,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(PATIENCE_SECONDS)
