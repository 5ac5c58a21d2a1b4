# Generated from _async/connection.py by tools/generate_sync.py; change that file, then run it.

"""Requests to the server and their answers: JSON, or bytes, or an error of the tree. Transient errors are tried again.

Every request that goes through `ask` may be sent twice without harm: reads, commits of an offset, joins under a given id, and
publishes with a number. So a lost answer is no reason to give up. Where the second time must be told from the first, `send`
takes another question for it.
"""

from functools import partial
from itertools import count
from typing import Any, TypeVar

import httpx
import msgspec

from tailrace.client._sync.concurrency import pause
from tailrace.client._sync.far_lines import FarLines
from tailrace.client._sync.lines import Lines
from tailrace.client.attempts import Attempts
from tailrace.client.config import ConnectionConfig
from tailrace.client.errors import BUSY, error_of_answer, error_of_connection
from tailrace.client.exchange import Answer, Request, checked_url, direct_address
from tailrace.client.trust import trusting
from tailrace.model.errors import ConnectionLostError, TailraceError

T = TypeVar("T")

_GOOD = range(200, 300)


class Connection:
    """What can be asked of one server, by however many at a time."""

    def __init__(self, url: str, config: ConnectionConfig) -> None:
        self.url = checked_url(url)
        self.config = config
        self._names = count(1)
        self._answers_have_names = False
        address = direct_address(self.url)
        self._lines = FarLines(self.url, trusting(self.url, config.ca_file)) if address is None else Lines(address)

    def close(self) -> None:
        self._lines.close()

    def ask(self, path: str, question: Any, shape: type[T], *, wait_seconds: float = 0.0, patience: float | None = None) -> T:
        """A question and its answer. Transient errors are tried again for `patience` seconds, or `api_timeout`."""
        answer = self.send("POST", path, question, wait_seconds=wait_seconds, patience=patience)
        return msgspec.json.decode(answer or b"null", type=shape)

    def look(self, path: str, shape: type[T]) -> T:
        """What is there."""
        return msgspec.json.decode(self.send("GET", path), type=shape)

    def send(
        self,
        method: str,
        path: str,
        question: Any = None,
        *,
        repeated: Any = None,
        wait_seconds: float = 0.0,
        patience: float | None = None,
    ) -> bytes:
        """The body of the answer. `wait_seconds` is what the server was asked to wait by the question itself.

        `repeated` is what to ask instead after an attempt that may have taken effect.
        """
        body = None if question is None else msgspec.json.encode(question)
        attempts = Attempts(self.config, patience)
        while True:
            try:
                return self.send_once(method, path, body, wait_seconds=wait_seconds)
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise
                if repeated is not None and attempts.unknown:
                    body = msgspec.json.encode(repeated)
            pause(seconds)

    def send_once(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float = 0.0, most_seconds: float | None = None
    ) -> bytes:
        """The same without trying again, and within `most_seconds`, if they are given."""
        timeout = self.config.request_timeout.total_seconds() + wait_seconds
        timeout = timeout if most_seconds is None else min(timeout, most_seconds)
        request = Request(method, path, str(next(self._names)), body)
        try:
            answer = self._lines.exchange(request, timeout, partial(self._check_name, request.name))
        except (OSError, httpx.HTTPError) as error:
            raise error_of_connection(self.url, error) from error
        if answer.status not in _GOOD:
            raise error_of_answer(answer.status, answer.body)
        return answer.body

    def _check_name(self, name: str, answer: Answer) -> None:
        """Servers name the request that they answer; what stands between may not.

        Nor does a server that can't take the connection. To come again is all that such an answer can mean, whosever it is.
        """
        if answer.name == name:
            self._answers_have_names = True
        elif answer.name is None and answer.status in BUSY:
            return
        elif answer.name is not None or self._answers_have_names:
            # Whatever stands between has doubled something, and all further answers of this connection are others' too.
            raise ConnectionLostError(f"{self.url} answered another request than this one, which may have taken effect")
