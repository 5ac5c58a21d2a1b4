"""What the copy of a shadow, and the commands about it, ask of the Tailrace server over HTTP."""

import asyncio
import os
import socket
from datetime import timedelta
from typing import TypeVar
from urllib.parse import quote

import msgspec

from tailrace.api.shadows import (
    AttachShadowBody,
    AttachShadowResponse,
    CutOverBody,
    FenceBody,
    FenceResponse,
    ReportShadowBody,
    ReportShadowResponse,
    RollBackBody,
    ShadowResponse,
    ShadowStatusResponse,
    UnfenceBody,
)
from tailrace.client._async.transport import AsyncTransport
from tailrace.client.config import ConnectionConfig
from tailrace.client.credentials import NO_CREDENTIALS, CredentialSource, ServerAccess
from tailrace.client.retry import is_transient
from tailrace.model.backoff import Backoff
from tailrace.model.errors import TailraceError
from tailrace.model.shadow import LocalProducers, Shadow, ShadowReport

T = TypeVar("T")

_REQUEST_SECONDS = 30.0
_REPORT_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class ShadowApi:
    """Sends the requests about one shadow. Used on the event loop."""

    def __init__(self, url: str, name: str, login: CredentialSource = NO_CREDENTIALS, what: str = "process") -> None:
        config = ConnectionConfig(**login.settings(), request_timeout=timedelta(seconds=_REQUEST_SECONDS))
        self._transport = AsyncTransport(url, config)
        self._path = f"/api/shadows/{quote(name, safe='')}"
        self.owner = f"{what} {os.getpid()} on {socket.gethostname()}"
        self._epoch = 0

    @property
    def access(self) -> ServerAccess:
        """How the server is reached, whose Kafka listener is reached in the same way."""
        return self._transport.access

    async def close(self) -> None:
        await self._transport.close()

    async def attach(self) -> AttachShadowResponse:
        """Become the process that copies the shadow, however long the server takes. Any other one is refused from then on."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        body = msgspec.json.encode(AttachShadowBody(self.owner))
        while True:
            try:
                response = await self._transport.send_once("POST", f"{self._path}/attach", body)
            except TailraceError as error:
                if not is_transient(error):
                    raise
                await asyncio.sleep(backoff.next_pause())
            else:
                attached = msgspec.json.decode(response, type=AttachShadowResponse)
                self._epoch = attached.epoch
                return attached

    async def report(self, report: ShadowReport) -> Shadow:
        """Report once, and return the definition as it is now. A report that fails is followed by the next."""
        body = msgspec.json.encode(ReportShadowBody(self._epoch, self.owner, report))
        response = await self._transport.send_once("POST", f"{self._path}/report", body, max_seconds=_REPORT_SECONDS)
        return msgspec.json.decode(response, type=ReportShadowResponse).shadow

    async def status(self) -> ShadowStatusResponse:
        return await self._transport.get(f"{self._path}/status", ShadowStatusResponse)

    async def fence(self, producers: LocalProducers, *, is_rehearsal: bool = False) -> FenceResponse:
        """Begin a cut-over. This is sent once: whether a fence without an answer is there shows in the status."""
        body = FenceBody(self.owner, producers, is_rehearsal=is_rehearsal)
        response = await self._transport.send_once("POST", f"{self._path}/fence", msgspec.json.encode(body))
        return msgspec.json.decode(response, type=FenceResponse)

    async def renew(self, fence: int, producers: LocalProducers) -> FenceResponse:
        """Keep a fence, and learn where the partitions end now."""
        return await self._ask("fence", FenceBody(self.owner, producers, fence), FenceResponse)

    async def unfence(self, fence: int | None, note: str) -> Shadow:
        return (await self._ask("unfence", UnfenceBody(fence, note), ShadowResponse)).shadow

    async def cut_over(self, producers: LocalProducers, fence: int | None) -> Shadow:
        return (await self._ask("cut-over", CutOverBody(producers, fence), ShadowResponse)).shadow

    async def roll_back(self, note: str) -> Shadow:
        return (await self._ask("roll-back", RollBackBody(note), ShadowResponse)).shadow

    async def _ask(self, path: str, body: msgspec.Struct, response_type: type[T]) -> T:
        return await self._transport.ask(f"{self._path}/{path}", body, response_type)
