"""The audit: who logged in or failed to, what was denied, and who changed users, roles, tokens and grants.

Records are JSON in the topic `_audit`, which only the server writes. They wait in memory, in a bounded number, and are written
in groups in the background, so what is audited takes no longer than to note it. When more come than can be written, denials of
the same operation on the same resource to the same principal are counted in one record, and logins wait: none of them is lost
while the server runs. What did not reach the log when it dies is lost.

Single reads and writes of records are not audited, nor is anything while authentication is off.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import msgspec

from tailrace.broker.security.authentication import Login
from tailrace.broker.security.principals import current_principal, current_surface
from tailrace.model.clock import Clock
from tailrace.model.errors import OverloadedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.security import EVERYBODY, Principal

_log = logging.getLogger(__name__)

_GROUP_RECORDS = 1_000
_GATHER_SECONDS = 0.05
"""How long records are gathered for a group."""
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 3.0
_MAX_COUNTED = 1_000
"""Different denials that are counted, each by itself. Those beyond are counted together."""
_MAX_KNOWN = 10_000
_KNOWN_SECONDS = 3600.0
"""After how long the login of a client that shows who it is with each request is recorded again."""
_SHOWN_CHARACTERS = 300
_SECRET_BEGINNINGS = ("tlr_", "eyJ")
"""How tokens begin, which some clients send in place of a name."""

AuditOutcome = Literal["allowed", "denied"]


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the topic."""

    time: str
    principal: str
    host: str
    surface: str
    what: str
    resource: str = ""
    outcome: AuditOutcome
    reason: str = ""
    count: int = 1
    """How often it happened. Only denials are counted together, and only when there are too many of them."""


class Audit:
    """Used on the event loop."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        *,
        is_on: bool,
        create_topic: Callable[[], Awaitable[object]],
        write: Callable[[Sequence[bytes]], Awaitable[object]],
    ) -> None:
        """`write` makes values of the topic durable, in one commit."""
        self.is_on = is_on
        self._clock = clock
        self._limits = limits
        self._create_topic = create_topic
        self._write = write
        self._waiting: list[AuditRecord] = []
        self._counted: dict[tuple[str, ...], AuditRecord] = {}
        self._known: OrderedDict[tuple[str, ...], float] = OrderedDict()
        """Clients that show who they are with each request, and when their login was last recorded."""
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._task: asyncio.Task[None] | None = None
        self.written = 0
        self.counted = 0
        """Denials that were counted in the record of another one."""
        self.failures = 0
        """Writes that failed. They are repeated."""

    async def start(self) -> None:
        if self.is_on:
            await self._create_topic()
            self._task = asyncio.create_task(self._run(), name="tailrace-audit")

    async def close(self) -> None:
        """Write what waits, unless that takes too long."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        with suppress(TailraceError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._waiting or self._counted:
                    await self._write_group()

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._counted)

    async def room(self) -> None:
        """Wait until a login can be recorded. Called before the credentials are looked at. Raises `OverloadedError`."""
        if not self.is_on or self._has_room.is_set():
            return
        try:
            await asyncio.wait_for(self._has_room.wait(), self._limits.publish_wait_ms / 1000)
        except TimeoutError:
            raise OverloadedError(
                f"{len(self._waiting)} records of the audit wait for the disk, as many as audit_records allows, and nobody is"
                " let in without one; try again after a pause"
            ) from None

    def logged_in(self, login: Login, how: str, *, each_request: bool = False) -> None:
        """Record a login. With `each_request` the client shows who it is with each one, and one login an hour is recorded."""
        if not self.is_on or (each_request and self._is_known(login, how)):
            return
        principal = login.principal
        self._add(self._record(principal, "login", "", "allowed", f"{how} {login.token_id}".rstrip()))

    def login_failed(self, name: str, host: str, how: str) -> None:
        """Record a failed login. `how` is the kind of the credentials, never a part of them."""
        if self.is_on:
            shown = "(a token)" if name.startswith(_SECRET_BEGINNINGS) else name
            self._add(self._record(Principal(shown, host), "login", "", "denied", how))

    def changed(self, what: str, resource: str) -> None:
        """Record a change of users, roles, tokens or grants that the principal of the request has made."""
        if self.is_on:
            self._add(self._record(current_principal(), what, resource, "allowed", ""))

    def denied(self, principal: Principal, what: str, resource: str) -> None:
        """Record what a principal may not do, or count it, if too many records wait."""
        if not self.is_on:
            return
        record = self._record(principal, what, resource, "denied", "no grant allows it")
        if self._has_room.is_set():
            self._add(record)
            return
        self.counted += 1
        key: tuple[str, ...] = (record.principal, record.host, record.what, record.resource)
        if key not in self._counted and len(self._counted) >= _MAX_COUNTED:
            key = (EVERYBODY,)
            record = msgspec.structs.replace(record, principal=EVERYBODY, host="", what="others", resource="")
        known = self._counted.get(key)
        self._counted[key] = record if known is None else msgspec.structs.replace(known, count=known.count + 1)

    def _is_known(self, login: Login, how: str) -> bool:
        principal = login.principal
        key = (principal.name, principal.host, current_surface(), how, login.token_id)
        now = self._clock.monotonic()
        since = self._known.get(key)
        if since is not None and now - since < _KNOWN_SECONDS:
            return True
        self._known[key] = now
        self._known.move_to_end(key)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return False

    def _record(self, principal: Principal, what: str, resource: str, outcome: AuditOutcome, reason: str) -> AuditRecord:
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        return AuditRecord(
            time=at.replace("+00:00", "Z"),
            principal=_shown(principal.name),
            host=principal.host,
            surface=current_surface(),
            what=what,
            resource=_shown(resource),
            outcome=outcome,
            reason=reason,
        )

    def _add(self, record: AuditRecord) -> None:
        self._waiting.append(record)
        self._arrived.set()
        if len(self._waiting) >= self._limits.audit_records:
            self._has_room.clear()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            if len(self._waiting) < _GROUP_RECORDS:
                await asyncio.sleep(_GATHER_SECONDS)
            try:
                await self._write_group()
            except TailraceError as error:
                self._failed(error)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  the top of a task; the records wait for the next attempt
                self._failed(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write_group(self) -> None:
        """Write the oldest records. They stay where they are until they are durable."""
        if self._counted and len(self._waiting) < _GROUP_RECORDS:
            self._waiting += self._counted.values()
            self._counted = {}
        group = self._waiting[:_GROUP_RECORDS]
        await self._write([msgspec.json.encode(record) for record in group])
        self.written += len(group)
        del self._waiting[: len(group)]
        if len(self._waiting) < self._limits.audit_records:
            self._has_room.set()
        if not self._waiting and not self._counted:
            self._arrived.clear()

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        _log.error(
            "%d records of the audit could not be written, and wait: %s",
            len(self._waiting),
            error,
            exc_info=None if isinstance(error, TailraceError) else error,
        )


def _shown(text: str) -> str:
    """Return a text that a client has chosen, in a length that is reasonable for a record."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
