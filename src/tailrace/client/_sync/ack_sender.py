# Generated from _async/ack_sender.py by tools/generate_sync.py; change that file, then run it.

"""Says to the server what became of records: whatever comes while a request is on its way goes into the next.

An answer that is lost is asked for again; the server answers the same receipts as before, so that is never taken for being
too late. Only where the server was restarted in between nobody knows, and then the error says so (`outcome` is `unknown`).
"""

import logging
from collections import deque
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from tailrace.client._sync.batch_sender import BatchSender
from tailrace.client._sync.concurrency import Outcome, pause
from tailrace.client._sync.transport import Transport
from tailrace.client.ack_buffer import AckBuffer, AckResponse, PendingAck, ReceiptCommand, RefusedReceipt, refusal_error
from tailrace.client.config import QueueConfig
from tailrace.client.retry import Attempts
from tailrace.model.errors import LateReceiptError, OverloadedError, TailraceError

_log = logging.getLogger("tailrace.client")

_REMEMBERED_FAILURES = 100


class AckOutcome:
    """What was said of records, and what becomes of it."""

    __slots__ = ("_outcome", "is_awaited")

    def __init__(self, is_awaited: bool) -> None:
        self._outcome: Outcome[None] = Outcome()
        self.is_awaited = is_awaited

    def wait(self) -> None:
        self._outcome.get()

    def succeed(self) -> None:
        self._outcome.set_value(None)

    def fail(self, error: Exception) -> None:
        self._outcome.set_error(error)


class AckSender:
    def __init__(self, connection: Transport, config: QueueConfig) -> None:
        self._connection = connection
        self._config = config
        self._path = f"/api/queues/{quote(config.group_id, safe='')}"
        self._box: AckBuffer[AckOutcome] = AckBuffer()
        self._courier: BatchSender[PendingAck[AckOutcome]] = BatchSender(
            self._box, self._deliver, f"subscription of group {config.group_id!r}"
        )
        self._failed: deque[Exception] = deque(maxlen=_REMEMBERED_FAILURES)

    def say(self, word: ReceiptCommand, receipts: Sequence[str]) -> None:
        """Returns when it counts and is durable."""
        said = self._put(word, receipts, is_awaited=True)
        said.wait()

    def say_soon(self, word: ReceiptCommand, receipts: Sequence[str]) -> None:
        """The same without waiting, but for room. Failures are raised by `raise_failure`."""
        self._put(word, receipts, is_awaited=False)

    def raise_failure(self) -> None:
        """The next failure that nobody waited for and nobody was told of."""
        if self._failed:
            raise self._failed.popleft()

    def flush(self) -> None:
        """Wait until everything that was said has its outcome."""
        self._courier.flush()

    def close(self) -> None:
        self._courier.close()

    def _put(self, word: ReceiptCommand, receipts: Sequence[str], is_awaited: bool) -> AckOutcome:
        said = AckOutcome(is_awaited)
        saying = PendingAck(word, receipts, said)
        if not self._courier.put(saying, self._config.api_timeout.total_seconds(), is_awaited=is_awaited):
            raise OverloadedError(
                f"{len(self._box)} acks and the like wait to be sent, and there was no room for"
                f" {self._config.api_timeout}; nothing was taken"
            )
        return said

    def _deliver(self, sayings: list[PendingAck[AckOutcome]]) -> None:
        # One receipt in two calls is one receipt.
        receipts = list(dict.fromkeys(receipt for saying in sayings for receipt in saying.receipts))
        try:
            refused, unknown = self._request(sayings[0].word, receipts)
        except Exception as error:  # noqa: BLE001  the top of the worker: whoever waits is told
            for saying in sayings:
                self._fail(saying, error)
            return
        for saying in sayings:
            late = [refused[receipt] for receipt in saying.receipts if receipt in refused]
            if late:
                self._fail(saying, refusal_error(late, unknown))
            else:
                saying.outcome.succeed()

    def _fail(self, saying: PendingAck[AckOutcome], error: Exception) -> None:
        saying.outcome.fail(error)
        if not saying.outcome.is_awaited:
            _log.warning(
                "%d events of group %s: %s failed: %s", len(saying.receipts), self._config.group_id, saying.word.path, error
            )
            self._failed.append(error)

    def _request(self, word: ReceiptCommand, receipts: list[str]) -> tuple[dict[str, RefusedReceipt], TailraceError | None]:
        """The receipts that do not count; and the error that hid an earlier answer, if there was one."""
        body = word.body(receipts)
        attempts = Attempts(self._config)
        while True:
            try:
                answer = self._connection.send_once("POST", f"{self._path}/{word.path}", body)
            except LateReceiptError as error:
                refused = msgspec.convert(error.refused, list[RefusedReceipt])
                return {each.receipt: each for each in refused}, attempts.unknown
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise attempts.final_error(error) from error
            else:
                return {each.receipt: each for each in msgspec.json.decode(answer, type=AckResponse).refused}, attempts.unknown
            pause(seconds)
