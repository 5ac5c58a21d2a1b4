"""The reads at the end of a run: fresh clients of several kinds read everything, from the start to the end.

Together they must find everything that was acknowledged. They wait until open transactions have ended, so that
nothing is hidden.
"""

import time
from collections.abc import Callable, Sequence

from chaos.api import RefusedError, RunApi
from chaos.history import BoundsCall, CallAnswer, CallOutcome, PollCall, RecordLocation, SeenRecord
from chaos.recorder import Recorder
from chaos.workers import librdkafka
from chaos.workers.http_topics import messages_of
from chaos.workers.sql_topics import select_all

WAIT_SECONDS = 60.0
_PAGE = 1000

Read = Callable[[str, dict[int, int]], list[SeenRecord]]


class FinalReads:
    """Used as `with FinalReads(...) as reads:`. It has clients of its own, which no fault has affected."""

    def __init__(self, recorder: Recorder, api: RunApi, kafka: str) -> None:
        self._recorder = recorder
        self._api = api
        self._consumer = librdkafka.open_consumer(kafka, "final")

    def __enter__(self) -> "FinalReads":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, topics: Sequence[str], translate: Callable[[SeenRecord], SeenRecord]) -> None:
        ends = {topic: self._bounds(topic) for topic in topics}
        for surface, read in (
            (librdkafka.SURFACE, self._by_kafka),
            ("http", self._by_http),
            ("sql", self._by_sql),
        ):
            for topic in topics:
                if any(ends[topic].values()):
                    self._record(surface, topic, ends[topic], read, translate)
        # Retention continues meanwhile, and what it deletes is not lost.
        for topic in topics:
            self._bounds(topic)

    def _bounds(self, topic: str) -> dict[int, int]:
        """Return the ends of the partitions, once no transaction is open."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            call = self._recorder.invoke("final", "http", BoundsCall((topic,)))
            rows = self._api.bounds(topic)
            self._recorder.complete(call, CallOutcome.OK, bounds_answer(topic, rows))
            open_ones = [row for row in rows if row["last_stable_offset"] != row["end_offset"]]
            if not open_ones or time.monotonic() > deadline:
                return {row["partition_id"]: row["last_stable_offset"] for row in rows}
            time.sleep(0.2)

    def _record(
        self, surface: str, topic: str, ends: dict[int, int], read: Read, translate: Callable[[SeenRecord], SeenRecord]
    ) -> None:
        what = PollCall(f"final/{surface}/{topic}", committed=True, final=True)
        call = self._recorder.invoke(f"final-{surface}", surface, what)
        try:
            seen = tuple(translate(each) for each in read(topic, ends))
        except RefusedError as error:
            self._recorder.complete(call, error.outcome, error=str(error))
        else:
            self._recorder.complete(call, CallOutcome.OK, CallAnswer(seen=seen))

    def _by_kafka(self, topic: str, ends: dict[int, int]) -> list[SeenRecord]:
        wanted = {(topic, number): end for number, end in ends.items()}
        return librdkafka.read_to_end(self._consumer, wanted, WAIT_SECONDS)

    def _by_http(self, topic: str, ends: dict[int, int]) -> list[SeenRecord]:
        found: list[SeenRecord] = []
        for number, end in ends.items():
            at = self._api.bounds(topic)[number]["start_offset"]
            while at < end:
                body = {"topic": topic, "partition_id": number, "start": at, "limit": _PAGE}
                answer = self._api.post("/api/topics/consume", body)
                found += messages_of(answer["messages"])
                if answer["next_offset"] <= at:
                    break
                at = answer["next_offset"]
        return found

    def _by_sql(self, topic: str, ends: dict[int, int]) -> list[SeenRecord]:
        return select_all(self._api, topic)


def bounds_answer(topic: str, rows: Sequence[dict[str, int]]) -> CallAnswer:
    starts = tuple(RecordLocation(topic, row["partition_id"], row["start_offset"]) for row in rows)
    ends = tuple(RecordLocation(topic, row["partition_id"], row["end_offset"]) for row in rows)
    return CallAnswer(starts=starts, ends=ends)
