"""Quotas of Kafka's clients: what a request has used is counted when it is answered.

Who has used more than its quota gets its answer, which says for how long it is to wait (`throttle_time_ms`), and nothing more
of its connection is read or started meanwhile, whether it knows to wait or not (KIP-219).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.broker.security.quotas import Quotas
from tailrace.model.commit import Buffer
from tailrace.model.security import Principal
from tailrace.wire.message import Api, describe
from tailrace.wire.messages.fetch import FETCH_API
from tailrace.wire.messages.produce import PRODUCE_API

_HEAD = Struct(">hhih")
_MILLISECONDS = Struct(">i")
_FIELD = "throttle_time_ms"
_RESPONSE_HEAD_BYTES = 8
_FLEXIBLE_RESPONSE_HEAD_BYTES = 9


class MeteredRequest(NamedTuple):
    """What is known of a request when it is answered."""

    key: int
    version: int
    client_id: str
    size: int


class Throttle:
    """Used on the event loop."""

    def __init__(self, quotas: Quotas, apis: Iterable[Api]) -> None:
        self.quotas = quotas
        self._apis = {api.key: api for api in apis}
        self._places: dict[tuple[int, int], int | None] = {}
        """Where the time is in the responses of an API and version, counted from the end if it is negative."""

    def metered(self, frame: bytearray) -> MeteredRequest:
        """Return what there is to know of a request whose head could be read."""
        key, version, _, id_bytes = _HEAD.unpack_from(frame)
        client_id = frame[_HEAD.size : _HEAD.size + max(0, id_bytes)].decode("utf-8", "replace")
        return MeteredRequest(key, version, client_id, len(frame))

    def charge(self, request: MeteredRequest, response: Sequence[Buffer] | None, principal: Principal) -> float:
        """Count a request, and return for how many seconds its client must wait."""
        quotas = self.quotas
        wait = quotas.charge(principal, request.client_id, "requests", 1)
        if request.key == PRODUCE_API.key:
            wait = max(wait, quotas.charge(principal, request.client_id, "publish_bytes", request.size))
        elif request.key == FETCH_API.key and response is not None:
            wait = max(wait, quotas.charge(principal, request.client_id, "consume_bytes", sum(map(len, response))))
        return wait

    def with_time(self, request: MeteredRequest, response: Sequence[Buffer], milliseconds: int) -> Sequence[Buffer]:
        """Return the response with the time to wait, if there is a place for it in this version."""
        where = request.key, request.version
        if where not in self._places:
            self._places[where] = self._place(*where)
        at = self._places[where]
        if at is None:
            return response
        if at < 0:
            at += sum(map(len, response))
        parts = list(response)
        for number, part in enumerate(parts):
            if at < len(part):
                changed = bytearray(part)
                _MILLISECONDS.pack_into(changed, at, milliseconds)
                parts[number] = changed
                break
            at -= len(part)
        return parts

    def _place(self, key: int, version: int) -> int | None:
        api = self._apis[key]
        is_flexible = api.is_flexible(version)
        names = [field.name for field in describe(api.response) if field.since <= version <= field.until and field.tag is None]
        if names[:1] == [_FIELD]:
            return _FLEXIBLE_RESPONSE_HEAD_BYTES if is_flexible else _RESPONSE_HEAD_BYTES
        if key == PRODUCE_API.key and names[-1:] == [_FIELD]:
            # Behind it are the tagged fields, of which the server sends none.
            return -_MILLISECONDS.size - (1 if is_flexible else 0)
        return None
