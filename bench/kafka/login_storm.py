"""A process that logs in to a server again and again, at a steady rate, however long the answers take."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bench.peers.login import Account, BadLogin, Logins
from bench.peers.servers import Peer
from bench.worker_process import Failed, WorkerProcess, say
from tailrace.model.address import Address

_SOURCE = "127.0.0.2"
"""Where the logins come from: what fails is held against its own address, as it would be on a network."""
_ANSWER_SECONDS = 60.0
_NICENESS = 10
"""Its own work is not to slow those who share the machine with it, as it would not from another machine."""


class Storm(msgspec.Struct, frozen=True, tag=True):
    """Log in at a steady rate, over a new connection each time. Answered with `Weathered`, when all are answered."""

    logins: int
    per_second: int
    is_right: bool
    """Whether it has the password."""


class Weathered(msgspec.Struct, frozen=True, tag=True):
    accepted: int
    refused: int
    begun_seconds: float
    """How long it took until the last login had begun."""
    seconds: Sequence[float]
    """How long each took."""


class StormProcess(WorkerProcess[Storm, Weathered]):
    """Runs this module as a child process."""

    def __init__(self, peer: Peer) -> None:
        settings = peer.client_settings
        account = Account(settings["sasl.username"], settings["sasl.password"], settings.get("ssl.ca.location", ""))
        target = _Target(peer.address, account)
        super().__init__(peer.name, "bench.kafka.login_storm", msgspec.json.encode(target).decode(), answers=Weathered)


class _Target(NamedTuple):
    address: Address
    account: Account


class _Client:
    def __init__(self, target: _Target) -> None:
        wrong = msgspec.structs.replace(target.account, password="not " + target.account.password)
        self._logins = {
            is_right: Logins(target.address, account, _SOURCE) for is_right, account in ((True, target.account), (False, wrong))
        }

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            try:
                say(asyncio.run(self._storm(msgspec.json.decode(line, type=Storm))))
            except (BadLogin, OSError, EOFError) as error:
                say(Failed(f"a login: {type(error).__name__}: {error}"))

    async def _storm(self, storm: Storm) -> Weathered:
        began = time.perf_counter()
        logins = []
        for number in range(storm.logins):
            await asyncio.sleep(max(0.0, began + number / storm.per_second - time.perf_counter()))
            logins.append(asyncio.create_task(self._log_in(storm.is_right)))
        begun = time.perf_counter() - began
        answers = [await each for each in logins]
        accepted = sum(is_in for is_in, _ in answers)
        return Weathered(accepted, len(answers) - accepted, begun, [seconds for _, seconds in answers])

    async def _log_in(self, is_right: bool) -> tuple[bool, float]:
        began = time.perf_counter()
        async with asyncio.timeout(_ANSWER_SECONDS):
            is_in = await self._logins[is_right].log_in()
        return is_in, time.perf_counter() - began


if __name__ == "__main__":
    os.nice(_NICENESS)
    _Client(msgspec.json.decode(sys.argv[1], type=_Target)).serve()
