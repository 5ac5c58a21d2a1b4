"""A member of a consumer group over plain HTTP requests, and a worker that polls the committed offsets of groups.

The member knows its generation exactly. It also keeps committing as its former self, of an older generation, which must be
refused.
"""

import base64
from collections.abc import Sequence
from typing import Any

from chaos.api import RefusedError
from chaos.history import CallAnswer, CallOutcome, CommitCall, CommittedCall, OwnedCall, PollCall, RecordLocation
from chaos.workers.http_topics import HttpWorker, messages_of
from chaos.workers.worker import RunTopic, WorkerContext
from tailrace.client.partition import RANGE, assign_ranges
from tailrace.wire.consumer_protocol import decode_assignment, decode_subscription, encode_assignment, encode_subscription

SESSION_MS = 4_000
LIFE_STEPS = (8, 40)


class HttpMember(HttpWorker):
    """Joins, syncs, sends heartbeats, reads and commits by plain requests. Now and then it joins again as a new member."""

    def __init__(
        self, name: str, context: WorkerContext, seed: int, per_second: float, topics: Sequence[RunTopic], group: str
    ) -> None:
        super().__init__(name, context, seed, per_second, topics)
        self._group = group
        self._path = f"/api/groups/{group}"
        self._member = ""
        self._generation = -1
        self._lives = 0
        self._steps_left = self.choice.randint(*LIFE_STEPS)
        self._next: dict[tuple[str, int], int] = {}
        self._former: tuple[str, int, tuple[RecordLocation, ...]] | None = None
        """The former self: member, generation, and what it would commit."""

    def step(self) -> None:
        try:
            if self._generation < 0:
                self._join()
                return
            self.api.post(f"{self._path}/heartbeat", self._identity)
        except RefusedError as error:
            if error.fields:
                self._leave(forget=error.kind != "rebalance-in-progress")
            self.pause(0.2)
            return
        self._poll()
        if self._former is not None and self.choice.random() < 0.5:
            self._commit_after_leaving(*self._former)
        self._steps_left -= 1
        if self._steps_left <= 0:
            self._leave(forget=True)

    @property
    def _identity(self) -> dict[str, Any]:
        return {"member_id": self._member, "generation": self._generation}

    def _leave(self, *, forget: bool) -> None:
        """Drop out of the generation without a request, as after a long silence."""
        locations = tuple(RecordLocation(*partition, offset) for partition, offset in self._next.items())
        if locations:
            self._former = (self._member, self._generation, locations)
        self._generation = -1
        self._next = {}
        self._steps_left = self.choice.randint(*LIFE_STEPS)
        self._member = "" if forget else self._member

    def _join(self) -> None:
        metadata = base64.b64encode(encode_subscription([topic.name for topic in self.topics])).decode()
        body: dict[str, Any] = {
            "protocols": [{"name": RANGE, "metadata": metadata}],
            "member_id": self._member,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 3_000,
        }
        try:
            joined = self.api.post(f"{self._path}/join", body)
        except RefusedError as error:
            if error.kind != "member-id-required":
                raise
            self._member = error.fields["member_id"]
            joined = self.api.post(f"{self._path}/join", {**body, "member_id": self._member})
        assignments = self._assign_partitions(joined["members"]) if joined["leader"] == joined["member_id"] else None
        synced = self.api.post(
            f"{self._path}/sync",
            {"member_id": joined["member_id"], "generation": joined["generation"], "assignments": assignments or []},
        )
        self._member, self._generation = joined["member_id"], joined["generation"]
        self._begin_with(decode_assignment(base64.b64decode(synced["assignment"])))

    def _assign_partitions(self, members: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        wants = {each["member_id"]: decode_subscription(base64.b64decode(each["metadata"])) for each in members}
        shares = assign_ranges(wants, {topic.name: topic.partitions for topic in self.topics})
        return [
            {"member_id": member, "assignment": base64.b64encode(encode_assignment(share)).decode()}
            for member, share in shares.items()
        ]

    def _begin_with(self, assignment: dict[str, list[int]]) -> None:
        locations = [RecordLocation(topic, number, -1) for topic, numbers in assignment.items() for number in numbers]
        now = self.context.recorder.now()
        what = OwnedCall(self._group, self._member, self._generation)
        self.context.recorder.observe(now, self.name, self.surface, what, CallAnswer(locations=tuple(locations)))
        call = self.context.recorder.invoke(self.name, self.surface, CommittedCall(self._group))
        try:
            offsets = committed_offsets(self.api.get(f"{self._path}/offsets?limit=1000"))
        except RefusedError as error:
            self.refused(call, error)
            self._leave(forget=True)
            return
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(locations=offsets))
        known = {(location.topic, location.partition): location.offset for location in offsets}
        self._lives += 1
        self._next = {
            (location.topic, location.partition): known.get((location.topic, location.partition), 0) for location in locations
        }

    def _poll(self) -> None:
        """Read on in one of the assigned partitions and commit."""
        if not self._next:
            return
        topic, number = self.choice.choice(sorted(self._next))
        session = f"{self.name}/{self._lives}"
        call = self.context.recorder.invoke(self.name, self.surface, PollCall(session, subscribed=True, committed=True))
        positions = [{"partition_id": number, "offset": self._next[topic, number]}]
        try:
            answer = self.api.post("/api/topics/consume", {"topic": topic, "positions": positions, "limit": 50})
        except RefusedError as error:
            self.refused(call, error)
            return
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=tuple(messages_of(answer["messages"]))))
        self._next[topic, number] = answer["partitions"][0]["next_offset"]
        if answer["messages"]:
            location = RecordLocation(topic, number, self._next[topic, number])
            self._commit(self._member, self._generation, (location,))

    def _commit_after_leaving(self, member: str, generation: int, locations: tuple[RecordLocation, ...]) -> None:
        """Commit as the former self, which does not know that it has left and reads on."""
        location = self.choice.choice(locations)
        positions = [{"partition_id": location.partition, "offset": location.offset}]
        try:
            answer = self.api.post("/api/topics/consume", {"topic": location.topic, "positions": positions, "limit": 500})
        except RefusedError:
            return
        self._commit(member, generation, (location._replace(offset=answer["partitions"][0]["next_offset"]),))

    def _commit(self, member: str, generation: int, locations: tuple[RecordLocation, ...]) -> None:
        call = self.context.recorder.invoke(self.name, self.surface, CommitCall(self._group, locations, generation))
        offsets = [
            {"topic": location.topic, "partition_id": location.partition, "offset": location.offset} for location in locations
        ]
        try:
            self.api.post(f"{self._path}/commit", {"member_id": member, "generation": generation, "offsets": offsets})
        except RefusedError as error:
            self.refused(call, error)
            return
        self.context.recorder.complete(call, CallOutcome.OK)


class CommittedOffsetsPoller(HttpWorker):
    """Polls the committed offsets of groups."""

    def __init__(self, name: str, context: WorkerContext, seed: int, per_second: float, groups: Sequence[str]) -> None:
        super().__init__(name, context, seed, per_second, ())
        self._groups = groups

    def step(self) -> None:
        group = self.choice.choice(self._groups)
        call = self.context.recorder.invoke(self.name, self.surface, CommittedCall(group))
        try:
            offsets = committed_offsets(self.api.get(f"/api/groups/{group}/offsets?limit=1000"))
        except RefusedError as error:
            self.refused(call, error)
            return
        self.context.recorder.complete(call, CallOutcome.OK, CallAnswer(locations=offsets))


def committed_offsets(answer: Any) -> tuple[RecordLocation, ...]:
    return tuple(
        RecordLocation(each["topic_name"], each["partition_id"], each["committed_offset"])
        for each in answer["offsets"]
        if each["committed_offset"] is not None
    )
