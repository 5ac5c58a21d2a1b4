# Generated from _async/ack_sender.py by tools/generate_sync.py; change that file, then run it.

"""Sends acks, nacks and extensions of a queue's consumer, batched into requests.

A request whose response is lost is sent again. The server answers the same receipts as before, so none is taken for late. Only
if the server was restarted in between can nobody tell, and the error says so (`outcome` is `unknown`).
"""

import logging
from collections import deque
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from tailrace.api.queues import ReceiptsResponse
from tailrace.client._sync.batch_sender import BatchSender
from tailrace.client._sync.concurrency import Outcome, pause
from tailrace.client._sync.transport import Transport
from tailrace.client.ack_buffer import AckBuffer, PendingAck, ReceiptCommand, refusal_error
from tailrace.client.config import QueueConfig
from tailrace.client.retry import Attempts
from tailrace.model.errors import LateReceiptError, OverloadedError, TailraceError
from tailrace.model.queue import RejectedReceipt

_log = logging.getLogger("tailrace.client")

_MAX_KEPT_FAILURES = 100


class AckOutcome:
    """The outcome of one ack, nack or extension."""

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
    def __init__(self, transport: Transport, config: QueueConfig) -> None:
        self._transport = transport
        self._config = config
        self._path = f"/api/queues/{quote(config.group_id, safe='')}"
        self._buffer: AckBuffer[AckOutcome] = AckBuffer()
        self._sender: BatchSender[PendingAck[AckOutcome]] = BatchSender(
            self._buffer, self._send_batch, f"subscription of group {config.group_id!r}"
        )
        self._failures: deque[Exception] = deque(maxlen=_MAX_KEPT_FAILURES)

    def send(self, command: ReceiptCommand, receipts: Sequence[str]) -> None:
        """Send a command and return when it has taken effect and is durable."""
        outcome = self._put(command, receipts, is_awaited=True)
        outcome.wait()

    def send_later(self, command: ReceiptCommand, receipts: Sequence[str]) -> None:
        """Send a command without waiting, except for room in the buffer. `raise_failure` raises what failed."""
        self._put(command, receipts, is_awaited=False)

    def raise_failure(self) -> None:
        """Raise the next failure of a command that nobody waited for."""
        if self._failures:
            raise self._failures.popleft()

    def flush(self) -> None:
        """Wait until every command has its outcome."""
        self._sender.flush()

    def close(self) -> None:
        self._sender.close()

    def _put(self, command: ReceiptCommand, receipts: Sequence[str], is_awaited: bool) -> AckOutcome:
        outcome = AckOutcome(is_awaited)
        ack = PendingAck(command, receipts, outcome)
        if not self._sender.put(ack, self._config.api_timeout.total_seconds(), is_awaited=is_awaited):
            raise OverloadedError(
                f"{len(self._buffer)} acks, nacks and extensions wait to be sent, and there was no room for one more within"
                f" {self._config.api_timeout}; it was not sent"
            )
        return outcome

    def _send_batch(self, acks: list[PendingAck[AckOutcome]]) -> None:
        # A receipt may be in several calls.
        receipts = list(dict.fromkeys(receipt for ack in acks for receipt in ack.receipts))
        try:
            refused, unknown = self._request(acks[0].command, receipts)
        except Exception as error:  # noqa: BLE001  the top of the worker: callers get it as the outcome
            for ack in acks:
                self._fail(ack, error)
            return
        for ack in acks:
            refused_here = [refused[receipt] for receipt in ack.receipts if receipt in refused]
            if refused_here:
                self._fail(ack, refusal_error(refused_here, unknown))
            else:
                ack.outcome.succeed()

    def _fail(self, ack: PendingAck[AckOutcome], error: Exception) -> None:
        ack.outcome.fail(error)
        if not ack.outcome.is_awaited:
            _log.warning(
                "%s of %d events of group %s failed: %s", ack.command.path, len(ack.receipts), self._config.group_id, error
            )
            self._failures.append(error)

    def _request(self, command: ReceiptCommand, receipts: list[str]) -> tuple[dict[str, RejectedReceipt], TailraceError | None]:
        """Send one request until its outcome is known. Returns the refused receipts, and the error of a lost response."""
        body = command.encode(receipts)
        attempts = Attempts(self._config)
        while True:
            try:
                response = self._transport.send_once("POST", f"{self._path}/{command.path}", body)
            except LateReceiptError as error:
                refused = msgspec.convert(error.refused, list[RejectedReceipt])
                return {each.receipt: each for each in refused}, attempts.unknown
            except TailraceError as error:
                seconds = attempts.pause_after(error)
                if seconds is None:
                    raise attempts.final_error(error) from error
            else:
                decoded = msgspec.json.decode(response, type=ReceiptsResponse)
                return {each.receipt: each for each in decoded.refused}, attempts.unknown
            pause(seconds)
