"""Reading a topic from request to request, for `tailrace consume`."""

import time
from typing import Any
from urllib.parse import quote

import msgspec

from tailrace.cli.display import note, note_corrupt
from tailrace.cli.failures import RefusedError
from tailrace.cli.messages import MessagePrinter
from tailrace.cli.server_api import ServerApi
from tailrace.http.consuming import ConsumeAnswer

_AT_ONCE = 1_000


class Reading:
    """Each request begins where the last one ended, whether or not a group has acked it. A step that failed is taken again.

    A topic that was deleted and made again is told, and read from its beginning or where the first request says.
    """

    def __init__(
        self, api: ServerApi, first: dict[str, Any], printer: MessagePrinter, acking: str | None, look_seconds: float = 10.0
    ) -> None:
        self._api = api
        self._topic = first["topic"]
        self._all_partitions = first["partition_id"] is None
        self._first = first
        self._request = first
        self._corrupt_batches = first.get("corrupt_batches", "report")
        self._printer = printer
        self._acking = acking
        self._unacked: dict[int, int] = {}
        self._topic_uuid: str | None = None
        """Which topic the positions and what is not acked belong to."""
        self._look_seconds = look_seconds
        self._looked_at = time.monotonic()
        self.printed = 0
        self.left = 0
        """How many more there were at the last step."""

    def step(self, limit: int | None, wait_ms: int = 0) -> bool:
        """Read, print, ack; whether there is more to read right now."""
        try:
            return self._step(limit, wait_ms)
        except RefusedError as error:
            if error.kind != "unknown-topic-id":
                raise
            self._begin_again(error)
            return True

    def look_for_new_partitions(self) -> None:
        """The topic may have grown since the first request, which meant all partitions that there were."""
        is_due = self._all_partitions and time.monotonic() - self._looked_at >= self._look_seconds
        if not is_due or "positions" not in self._request:
            return
        self._looked_at = time.monotonic()
        known = {each["partition_id"]: each["offset"] for each in self._request["positions"]}
        found = self._api.pages(f"/api/topics/{quote(self._topic, safe='')}/partitions", "partitions")
        self._go_on_at({each["partition_id"]: each["start_offset"] for each in found} | known)

    def _step(self, limit: int | None, wait_ms: int) -> bool:
        self._ack()
        answer = self._read(_AT_ONCE if limit is None else min(_AT_ONCE, limit - self.printed), wait_ms)
        for message in answer.messages:
            self._printer.show(message)
        self._printer.flush()
        for batch in answer.corrupt if self._corrupt_batches == "skip" else ():
            note_corrupt(msgspec.structs.asdict(batch))
        self.printed += len(answer.messages)
        self._unacked = {message.partition_id: message.offset for message in answer.messages}
        self.left = sum(each.end_offset - each.next_offset for each in answer.partitions)
        self._topic_uuid = str(answer.topic_uuid)
        self._go_on_at({each.partition_id: each.next_offset for each in answer.partitions})
        self._ack()
        return answer.has_more

    def _read(self, limit: int, wait_ms: int) -> ConsumeAnswer:
        body = {**self._request, "limit": limit, "timeout_ms": wait_ms}
        return self._api.repeat("/api/topics/consume", body, ConsumeAnswer, seconds=wait_ms / 1000)

    def _go_on_at(self, offsets: dict[int, int]) -> None:
        positions = [{"partition_id": partition, "offset": offset} for partition, offset in offsets.items()]
        self._request = {
            "topic": self._topic,
            "topic_uuid": self._topic_uuid,
            "positions": positions,
            "corrupt_batches": self._corrupt_batches,
        }

    def _begin_again(self, error: RefusedError) -> None:
        note(f"{error}; reading it from its start")
        self._unacked = {}
        self._topic_uuid = None
        self._request = dict(self._first)
        if isinstance(self._request.get("start"), int):
            # An offset of the topic that is gone.
            del self._request["start"]

    def _ack(self) -> None:
        """What was printed. The same offset again changes nothing, so this may be repeated."""
        for partition, offset in sorted(self._unacked.items()) if self._acking is not None else ():
            body = {"topic": self._topic, "topic_uuid": self._topic_uuid, "group_id": self._acking}
            body |= {"partition_id": partition, "upto_offset": offset}
            self._api.repeat("/api/topics/ack", body, dict)
            del self._unacked[partition]
