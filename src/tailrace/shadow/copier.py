"""Copies one shadow: session after session, and reports to the server meanwhile.

What can pass by itself is tried again with a growing pause. Everything is reported every second, so that `system.shadows` shows
the state, the error and what to do.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from tailrace.api.shadows import AttachShadowResponse
from tailrace.client.credentials import NO_CREDENTIALS, CredentialSource
from tailrace.model.backoff import Backoff
from tailrace.model.errors import ShadowFencedError, TailraceError, UnknownShadowError
from tailrace.model.shadow import Shadow, ShadowReport
from tailrace.shadow.cluster import KafkaCluster
from tailrace.shadow.copy_session import CopySession, positions_name
from tailrace.shadow.failures import ShadowError, TopicRefusedError
from tailrace.shadow.kafka_access import kafka_access, server_access
from tailrace.shadow.progress import Progress
from tailrace.shadow.server_api import ShadowApi

_log = logging.getLogger("tailrace.shadow")

_REPORT_SECONDS = 1.0
_REPORT_SHARE = 20
"""The part of the time that may go into reports is one in so many."""
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STABLE_SECONDS = 30.0
_PAUSED_SECONDS = 0.5


class Copier:
    """Copies a shadow until `stop`, or until another process does."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        login: CredentialSource = NO_CREDENTIALS,
        on_report: Callable[[ShadowReport], None] = lambda _: None,
    ) -> None:
        self._on_report = on_report
        self._api = ShadowApi(url, name, login)
        self._progress = Progress()
        self._shadow: Shadow | None = None
        self._session: CopySession | None = None
        self._stopping = asyncio.Event()
        self._fenced: TailraceError | None = None

    def stop(self) -> None:
        """Let `run` return after the transaction that is under way."""
        self._stopping.set()
        if self._session is not None:
            self._session.stop()

    async def run(self) -> None:
        """Copy. Raises `ShadowFencedError` if another process does it, and `UnknownShadowError` if the shadow is dropped."""
        attaching = asyncio.create_task(self._api.attach())
        reporting: asyncio.Task[None] | None = None
        try:
            await _first_of(attaching, self._stopping)
            if not attaching.done():
                return
            attached = attaching.result()
            self._shadow = attached.shadow
            reporting = asyncio.create_task(self._send_reports())
            await self._copy_again_and_again(attached)
            if self._fenced is not None:
                raise self._fenced
        finally:
            for task in filter(None, (attaching, reporting)):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await self._api.close()

    async def _copy_again_and_again(self, attached: AttachShadowResponse) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        now = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            shadow = self._shadow or attached.shadow
            if not shadow.is_copied:
                if self._progress.state != "stopped":
                    self._progress.begin()
                    self._progress.set_state("stopped")
                await self._wait(_PAUSED_SECONDS)
                continue
            began = now()
            try:
                await self._copy(shadow, attached)
            except TopicRefusedError as error:
                self._progress.refuse(error)
                backoff.reset()
                _log.warning("%s. %s", error.message, error.advice)
            except ShadowError as error:
                self._progress.fail(error)
                _log.warning("%s. %s", error.message, error.advice)
            if now() - began > _STABLE_SECONDS:
                backoff.reset()
            if not self._stopping.is_set() and (self._shadow or shadow).is_copied:
                await self._wait(backoff.next_pause())

    async def _copy(self, shadow: Shadow, attached: AttachShadowResponse) -> None:
        server = KafkaCluster(server_access(attached.kafka, self._api.access))
        kafka = KafkaCluster(kafka_access(shadow))
        origin, target = (server, kafka) if shadow.direction == "to" else (kafka, server)
        self._progress.begin()
        name = positions_name(shadow, attached.cluster_id)
        session = self._session = CopySession(shadow, name, origin, target, self._progress)
        try:
            await session.run()
        finally:
            self._session = None
            await server.close()
            await kafka.close()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _send_reports(self) -> None:
        """Send a report every second, and at once when the state changes."""
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            self._progress.changed.clear()
            report = self._progress.report()
            self._on_report(report)
            try:
                self._take(await self._api.report(report))
            except (ShadowFencedError, UnknownShadowError) as error:
                self._fenced = error
                self.stop()
                return
            except TailraceError as error:
                _log.debug("the report was not sent: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(_REPORT_SECONDS, _REPORT_SHARE * (now() - began))):
                    await self._progress.changed.wait()

    def _take(self, shadow: Shadow) -> None:
        """Take the definition as it is now."""
        before, self._shadow = self._shadow, shadow
        if self._session is None or before == shadow:
            return
        is_other = before is None or _connection(before) != _connection(shadow)
        if is_other or not shadow.is_copied:
            self._session.stop()
        else:
            self._session.update(shadow)


def _connection(shadow: Shadow) -> tuple[object, ...]:
    return shadow.bootstrap, shadow.settings, shadow.user, shadow.password_env, shadow.password_file


async def _first_of(task: "asyncio.Task[AttachShadowResponse]", stopping: asyncio.Event) -> None:
    """Wait until the task is done, or until it is to stop."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
