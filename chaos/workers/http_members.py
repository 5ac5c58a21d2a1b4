"""A member of a consumer group that speaks the protocol over HTTP by itself, and somebody who asks how far groups have come.

The member knows its generation exactly and keeps a twin of its former self, who goes on committing: that must be refused.
"""

import base64
from collections.abc import Sequence
from typing import Any

from chaos.api import RefusedError
from chaos.history import CallAnswer, CallOutcome, CommitCall, CommittedCall, OwnedCall, PollCall, RecordLocation
from chaos.workers.http_topics import HttpWorker, messages_of
from chaos.workers.worker import TopicShape, WorkerContext
from tailrace.client.partition import RANGE, assign_ranges
from tailrace.wire.consumer_protocol import decode_assignment, decode_subscription, encode_assignment, encode_subscription

SESSION_MS = 4_000
LIFE_STEPS = (8, 40)


class HttpMember(HttpWorker):
    """Joins, syncs, beats, reads and commits by plain requests. It joins anew, as somebody else, every now and then."""

    def __init__(
        self, name: str, site: WorkerContext, seed: int, per_second: float, topics: Sequence[TopicShape], group: str
    ) -> None:
        super().__init__(name, site, seed, per_second, topics)
        self._group = group
        self._path = f"/api/groups/{group}"
        self._member = ""
        self._generation = -1
        self._lives = 0
        self._steps_left = self.choice.randint(*LIFE_STEPS)
        self._next: dict[tuple[str, int], int] = {}
        self._former: tuple[str, int, tuple[RecordLocation, ...]] | None = None
        """A past self: member, generation, and what it would commit."""

    def step(self) -> None:
        try:
            if self._generation < 0:
                self._join()
                return
            self.api.post(f"{self._path}/heartbeat", self._identity)
        except RefusedError as error:
            if error.fields:
                self._be_gone(forget=error.kind != "rebalance-in-progress")
            self.rest(0.2)
            return
        self._poll()
        if self._former is not None and self.choice.random() < 0.5:
            self._haunt(*self._former)
        self._steps_left -= 1
        if self._steps_left <= 0:
            self._be_gone(forget=True)

    @property
    def _identity(self) -> dict[str, Any]:
        return {"member_id": self._member, "generation": self._generation}

    def _be_gone(self, *, forget: bool) -> None:
        """Drop out of the generation, as after a long silence: nobody is told."""
        places = tuple(RecordLocation(*partition, offset) for partition, offset in self._next.items())
        if places:
            self._former = (self._member, self._generation, places)
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
        assignments = self._share_out(joined["members"]) if joined["leader"] == joined["member_id"] else None
        synced = self.api.post(
            f"{self._path}/sync",
            {"member_id": joined["member_id"], "generation": joined["generation"], "assignments": assignments or []},
        )
        self._member, self._generation = joined["member_id"], joined["generation"]
        self._begin_with(decode_assignment(base64.b64decode(synced["assignment"])))

    def _share_out(self, members: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        wants = {each["member_id"]: decode_subscription(base64.b64decode(each["metadata"])) for each in members}
        shares = assign_ranges(wants, {topic.name: topic.partitions for topic in self.topics})
        return [
            {"member_id": member, "assignment": base64.b64encode(encode_assignment(share)).decode()}
            for member, share in shares.items()
        ]

    def _begin_with(self, assignment: dict[str, list[int]]) -> None:
        places = [RecordLocation(topic, number, -1) for topic, numbers in assignment.items() for number in numbers]
        now = self.site.recorder.now()
        what = OwnedCall(self._group, self._member, self._generation)
        self.site.recorder.observe(now, self.name, self.surface, what, CallAnswer(places=tuple(places)))
        call = self.site.recorder.invoke(self.name, self.surface, CommittedCall(self._group))
        try:
            offsets = committed_offsets(self.api.get(f"{self._path}/offsets?limit=1000"))
        except RefusedError as error:
            self.refused(call, error)
            self._be_gone(forget=True)
            return
        self.site.recorder.complete(call, CallOutcome.OK, CallAnswer(places=offsets))
        known = {(place.topic, place.partition): place.offset for place in offsets}
        self._lives += 1
        self._next = {(place.topic, place.partition): known.get((place.topic, place.partition), 0) for place in places}

    def _poll(self) -> None:
        """Read one of its partitions on and commit."""
        if not self._next:
            return
        topic, number = self.choice.choice(sorted(self._next))
        session = f"{self.name}/{self._lives}"
        call = self.site.recorder.invoke(self.name, self.surface, PollCall(session, subscribed=True, committed=True))
        positions = [{"partition_id": number, "offset": self._next[topic, number]}]
        try:
            answer = self.api.post("/api/topics/consume", {"topic": topic, "positions": positions, "limit": 50})
        except RefusedError as error:
            self.refused(call, error)
            return
        self.site.recorder.complete(call, CallOutcome.OK, CallAnswer(seen=tuple(messages_of(answer["messages"]))))
        self._next[topic, number] = answer["partitions"][0]["next_offset"]
        if answer["messages"]:
            place = RecordLocation(topic, number, self._next[topic, number])
            self._commit(self._member, self._generation, (place,))

    def _haunt(self, member: str, generation: int, places: tuple[RecordLocation, ...]) -> None:
        """The past self does not know that it is past: it reads on where it was and commits that."""
        place = self.choice.choice(places)
        positions = [{"partition_id": place.partition, "offset": place.offset}]
        try:
            answer = self.api.post("/api/topics/consume", {"topic": place.topic, "positions": positions, "limit": 500})
        except RefusedError:
            return
        self._commit(member, generation, (place._replace(offset=answer["partitions"][0]["next_offset"]),))

    def _commit(self, member: str, generation: int, places: tuple[RecordLocation, ...]) -> None:
        call = self.site.recorder.invoke(self.name, self.surface, CommitCall(self._group, places, generation))
        offsets = [{"topic": place.topic, "partition_id": place.partition, "offset": place.offset} for place in places]
        try:
            self.api.post(f"{self._path}/commit", {"member_id": member, "generation": generation, "offsets": offsets})
        except RefusedError as error:
            self.refused(call, error)
            return
        self.site.recorder.complete(call, CallOutcome.OK)


class CommittedOffsetsPoller(HttpWorker):
    """Asks how far a group has come."""

    def __init__(self, name: str, site: WorkerContext, seed: int, per_second: float, groups: Sequence[str]) -> None:
        super().__init__(name, site, seed, per_second, ())
        self._groups = groups

    def step(self) -> None:
        group = self.choice.choice(self._groups)
        call = self.site.recorder.invoke(self.name, self.surface, CommittedCall(group))
        try:
            offsets = committed_offsets(self.api.get(f"/api/groups/{group}/offsets?limit=1000"))
        except RefusedError as error:
            self.refused(call, error)
            return
        self.site.recorder.complete(call, CallOutcome.OK, CallAnswer(places=offsets))


def committed_offsets(answer: Any) -> tuple[RecordLocation, ...]:
    return tuple(
        RecordLocation(each["topic_name"], each["partition_id"], each["committed_offset"])
        for each in answer["offsets"]
        if each["committed_offset"] is not None
    )
