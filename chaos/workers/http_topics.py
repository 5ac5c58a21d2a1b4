"""Workers over HTTP: atomic publishes that are repeated until they are answered, reads by positions, and bounds."""

import base64
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.api import RefusedError, RunApi
from chaos.history import BoundsCall, CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord, SendCall
from chaos.workers.worker import RunTopic, Worker, WorkerContext, all_locations, text

SURFACE = "http"
REPEAT_SECONDS = 20.0
PAUSE_SECONDS = 0.3


class HttpWorker(Worker):
    """A worker with a connection pool of its own."""

    surface = SURFACE

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, topics: Sequence[RunTopic]) -> None:
        super().__init__(name, context, seed, per_second)
        self.topics = topics
        self.locations = all_locations(topics)
        self.api = RunApi(context.url)

    def end(self) -> None:
        self.api.close()

    def refused(self, call: int, error: RefusedError) -> None:
        """Record the outcome and pause, because more requests to a server that is down show nothing more."""
        self.context.recorder.complete(call, error.outcome, error=str(error))
        self.pause(PAUSE_SECONDS)


class HttpPublisher(HttpWorker):
    """Publishes one to four records to any partitions, all or nothing.

    Publishes are numbered, so one whose answer was lost is asked for again under its number, and stored once.
    """

    def begin(self) -> None:
        self._publisher = str(uuid.UUID(int=self.choice.getrandbits(128)))
        self._number = 0

    def step(self) -> None:
        records = tuple((self.choice.choice(self.locations), self.new_value()) for _ in range(self.choice.randint(1, 4)))
        call = self.context.recorder.invoke(self.name, SURFACE, SendCall(records, atomic=True))
        self._number += 1
        messages = [
            {"topic": location.topic, "partition_id": location.partition, "value": value} for location, value in records
        ]
        body = {"messages": messages, "publisher": self._publisher, "number": self._number}
        deadline = time.monotonic() + REPEAT_SECONDS
        unknown = False
        while True:
            try:
                answer = self.api.post("/api/topics/publish", body)
            except RefusedError as error:
                unknown = unknown or error.outcome is CallOutcome.UNKNOWN
                if (error.fields and not error.fields.get("retriable")) or time.monotonic() > deadline or self.is_stopping:
                    # The failure of a later try says nothing about an earlier one that was not answered.
                    self.context.recorder.complete(
                        call, CallOutcome.UNKNOWN if unknown else CallOutcome.FAILED, error=str(error)
                    )
                    return
                time.sleep(0.2)
            else:
                locations = tuple(
                    RecordLocation(each["topic_name"], each["partition_id"], each["offset"]) for each in answer["records"]
                )
                self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(locations=locations))
                return


class HttpReader(HttpWorker):
    """Reads one topic by positions that it keeps itself."""

    _sessions = 0
    _topic = ""
    _positions: dict[int, int]
    _begins: tuple[RecordLocation, ...] = ()

    def begin(self) -> None:
        self._start_over()

    def step(self) -> None:
        if self.choice.random() < 1 / 64:
            self._start_over()
        positions = [{"partition_id": number, "offset": offset} for number, offset in self._positions.items()]
        what = PollCall(f"{self.name}/{self._sessions}", committed=True, begins=self._begins)
        call = self.context.recorder.invoke(self.name, SURFACE, what)
        try:
            body = {"topic": self._topic, "positions": positions, "limit": 100, "timeout_ms": 100}
            answer = self.api.post("/api/topics/consume", body)
        except RefusedError as error:
            if error.kind == "offset-out-of-range":
                self._handle_out_of_range(call, error)
            else:
                self.refused(call, error)
            return
        self._begins = ()
        self._positions = {each["partition_id"]: each["next_offset"] for each in answer["partitions"]}
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=tuple(messages_of(answer["messages"]))))

    def _handle_out_of_range(self, call: int, error: RefusedError) -> None:
        starts = {row["partition_id"]: row["start_offset"] for row in self._bounds(self._topic)}
        locations = (RecordLocation(self._topic, number, offset) for number, offset in self._positions.items())
        lost = tuple(location for location in locations if location.offset < starts[location.partition])
        self.context.recorder.complete(call, CallOutcome.FAILED, CallAnswer(out_of_range=lost), error=str(error))
        self._start_over()

    def _start_over(self) -> None:
        """Choose another topic and begin at its current start."""
        shape = self.choice.choice(self.topics)
        rows = self._bounds(shape.name)
        self._sessions += 1
        self._topic = shape.name
        self._positions = {row["partition_id"]: row["start_offset"] for row in rows}
        self._begins = tuple(RecordLocation(shape.name, number, offset) for number, offset in self._positions.items())

    def _bounds(self, topic: str) -> list[dict[str, int]]:
        while True:
            try:
                return self.api.bounds(topic)
            except RefusedError:
                if self.is_stopping:
                    return [{"partition_id": location.partition, "start_offset": 0} for location in self.locations]
                self.pause(0.2)


class BoundsPoller(HttpWorker):
    """Polls the first and the next offset of partitions."""

    def step(self) -> None:
        topic = self.choice.choice(self.topics).name
        call = self.context.recorder.invoke(self.name, SURFACE, BoundsCall((topic,)))
        try:
            rows = self.api.bounds(topic)
        except RefusedError as error:
            self.refused(call, error)
            return
        starts = tuple(RecordLocation(topic, row["partition_id"], row["start_offset"]) for row in rows)
        ends = tuple(RecordLocation(topic, row["partition_id"], row["end_offset"]) for row in rows)
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(starts=starts, ends=ends))


def messages_of(messages: Sequence[Mapping[str, Any]]) -> list[SeenRecord]:
    """Convert records of a `consume` response."""
    return [
        SeenRecord(
            RecordLocation(each["topic_name"], each["partition_id"], each["offset"]),
            _value(each),
            each.get("cursor", -1),
            key=each.get("key"),
        )
        for each in messages
    ]


def _value(message: Mapping[str, Any]) -> str:
    if "value_base64" in message:
        return text(base64.b64decode(message["value_base64"]))
    value = message.get("value")
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
