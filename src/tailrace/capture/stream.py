"""The replication stream of a slot: messages come in, and positions that the log has are confirmed.

libpq is used directly, through psycopg: what is confirmed must be exactly what the log has, so keepalives are answered here
and not by a driver that confirms on its own what it believes to be processed.
"""

import select
import time
from struct import Struct

import psycopg
from psycopg import pq

from tailrace.capture.database import Database, quoted
from tailrace.capture.failures import CaptureError, connection_failure
from tailrace.model.source import Source, format_lsn

_DATA = Struct(">cQQQ")
_DATA_TAG = ord("w")
_KEEPALIVE = Struct(">cQQB")
_STATUS = Struct(">cQQQQB")
_EPOCH_2000_US = 946_684_800_000_000
_STATUS_SECONDS = 10.0
_CONFIRM_SECONDS = 0.5
_SILENCE_SECONDS = 90.0
"""A database that sends nothing for so long is taken for gone; it sends a keepalive at least every half minute."""
_SLOT_IN_USE = "55006"


class ReplicationStream:
    def __init__(self, database: Database, connection: "pq.abc.PGconn", source: Source, position: int) -> None:
        self._database = database
        self._connection = connection
        self._source = source
        self.received_lsn = position
        """Everything that was committed before it has been read."""
        self._confirmed = position
        self._sent_confirmed = 0
        self._status_at = 0.0
        self._heard_at = time.monotonic()

    def start(self, position: int) -> None:
        options = {
            "proto_version": "2",
            "publication_names": quoted(self._source.publication).replace("'", "''"),
            "messages": "true",
            "streaming": "on",
        }
        listed = ", ".join(f"{name} '{value}'" for name, value in options.items())
        text = f"START_REPLICATION SLOT {quoted(self._source.slot)} LOGICAL {format_lsn(position)} ({listed})"
        result = self._connection.exec_(text.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            error = psycopg.errors.error_from_result(result)
            if error.sqlstate == _SLOT_IN_USE:
                raise CaptureError(
                    f"the slot {self._source.slot!r} is in use by another connection: {error.diag.message_primary}",
                    "If another process captures this source, stop it. After a lost connection the database frees the slot by"
                    " itself, within wal_sender_timeout",
                    state="retrying",
                )
            raise connection_failure(error, f"can't stream from the slot {self._source.slot!r}")

    def read(self, most: int, wait_seconds: float) -> list[bytes]:
        """Return the messages that have come, at most so many. Waits for one if there is none.

        With 0, only the database is told how far the log is.
        """
        found: list[bytes] = []
        deadline = time.monotonic() + wait_seconds
        get = self._connection.get_copy_data
        unpack, head, data_tag, add = _DATA.unpack_from, _DATA.size, _DATA_TAG, found.append
        received, last_lsn = False, self.received_lsn
        while len(found) < most:
            size, data = get(1)
            if size > 0:
                received = True
                if data[0] == data_tag:
                    lsn = unpack(data)[1]
                    if lsn > last_lsn:
                        self.received_lsn = last_lsn = lsn
                    add(bytes(data[head:]))
                else:
                    self._take_keepalive(bytes(data))
                    last_lsn = self.received_lsn
            elif size < 0:
                self._raise_ended()
            elif found or not self._wait(deadline):
                break
        now = time.monotonic()
        if received or not most:
            # Nothing is asked for if the server is slow.
            self._heard_at = now
        if now - self._heard_at > _SILENCE_SECONDS:
            raise CaptureError(
                f"the database has sent nothing for {_SILENCE_SECONDS:g} s",
                "It is connected to again. Check the network between them if this happens often",
                state="retrying",
            )
        is_due = self._confirmed > self._sent_confirmed and now - self._status_at > _CONFIRM_SECONDS
        if is_due or now - self._status_at > _STATUS_SECONDS:
            self._send_status()
        return found

    def confirm(self, position: int) -> None:
        """Let the database forget what lies before the position. The next read sends it, at the latest after half a second."""
        self._confirmed = max(self._confirmed, position)

    def close(self) -> None:
        try:
            if self._confirmed > self._sent_confirmed:
                self._send_status()
        except psycopg.Error:
            pass
        finally:
            self._connection.finish()

    def _take_keepalive(self, data: bytes) -> None:
        if data[:1] == b"k":
            _, wal_end, _, wants_reply = _KEEPALIVE.unpack_from(data)
            self.received_lsn = max(self.received_lsn, wal_end)
            if wants_reply:
                self._send_status()

    def _wait(self, deadline: float) -> bool:
        """Wait for bytes. Return whether some have come before the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        ready, _, _ = select.select([self._connection.socket], [], [], left)
        if not ready:
            return False
        try:
            self._connection.consume_input()
        except psycopg.Error as error:
            raise connection_failure(error, "the connection to the database was lost") from error
        return True

    def _send_status(self) -> None:
        # The position is of the byte behind the last one that is needed no more.
        now_us = time.time_ns() // 1000 - _EPOCH_2000_US
        body = _STATUS.pack(b"r", self.received_lsn, self._confirmed, self._confirmed, now_us, 0)
        try:
            self._connection.put_copy_data(body)
            self._connection.flush()
        except psycopg.Error as error:
            raise connection_failure(error, "the connection to the database was lost") from error
        self._sent_confirmed = self._confirmed
        self._status_at = time.monotonic()

    def _raise_ended(self) -> None:
        result = self._connection.get_result()
        error: psycopg.Error = psycopg.OperationalError(self._connection.get_error_message() or "it ended the stream")
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            error = psycopg.errors.error_from_result(result)
        raise connection_failure(error, "the database ended the stream")
