"""How a listener with TLS takes connections from the system."""

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

from tailrace.model.limits import Limits
from tailrace.tls.acceptor import TlsAcceptor
from tests.support.aio import on_loop, until

WAITING = 5


@on_loop
async def test_others_have_a_turn_between_two_connections_that_are_accepted() -> None:
    loop = asyncio.get_running_loop()
    turn = 0
    accepted_in: list[int] = []

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count_turns)

    def admits(host: str, now: float) -> bool:
        accepted_in.append(turn)
        return False

    certificate: Any = None
    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as clients:
        for _ in range(WAITING):
            clients.enter_context(socket.create_connection(bound.getsockname()))
        acceptor = TlsAcceptor(bound, certificate, Limits(), advice="")
        count_turns()
        acceptor.start(asyncio.Protocol, open_connections=lambda: 0, admits=admits, refused=lambda reason, message: None)
        await until(lambda: len(accepted_in) == WAITING)
        acceptor.close()
    assert len(set(accepted_in)) == WAITING
