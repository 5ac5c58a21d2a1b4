"""Short notation for hand-made histories: `story.send("a b", at=0)`, `story.final("a@0 b@1")`.

Each call is invoked and completed before the next, a tenth of a second later, unless it is made with `begin` and `end`. Records
are written as `value@offset`, those of a send as values alone, and are in `topic/partition`.
"""

from typing import Any

from chaos.checker.judging import judge
from chaos.checker.rules import RULES
from chaos.checker.violation import Violation
from chaos.history import (
    BoundsCall,
    Call,
    CallAnswer,
    CallOutcome,
    ChangeCall,
    CommitCall,
    CommittedCall,
    Completed,
    DeclaredTopic,
    Fault,
    HistoryLine,
    Invoked,
    OwnedCall,
    PollCall,
    RecordLocation,
    RowsCall,
    RunPhase,
    SeenRecord,
    SendCall,
    SettleCall,
    TakeCall,
    TransactionCall,
)

OK, FAILED, UNKNOWN = CallOutcome.OK, CallOutcome.FAILED, CallOutcome.UNKNOWN


def location(where: str, offset: int = -1) -> RecordLocation:
    topic, _, partition = where.partition("/")
    return RecordLocation(topic, int(partition or 0), offset)


def records(text: str, where: str, **fields: Any) -> tuple[SeenRecord, ...]:
    """Parse `a@0 b@1` for a partition, or `a@topic/0:0` with its own partition."""
    return tuple(_record(word, where, fields) for word in text.split())


def _record(word: str, where: str, fields: dict[str, Any]) -> SeenRecord:
    value, _, address = word.partition("@")
    own, _, offset = address.rpartition(":")
    return SeenRecord(location(own or where, int(offset)), value, **fields)


class Story:
    def __init__(self) -> None:
        self.lines: list[HistoryLine] = []
        self.now = 0.0
        self._calls = 0

    def write(self, line: HistoryLine) -> None:
        self.lines.append(line)

    def tick(self, seconds: float = 0.1) -> float:
        self.now = round(self.now + seconds, 6)
        return self.now

    def begin(self, what: Call, worker: str = "w1", surface: str = "kafka") -> int:
        self._calls += 1
        self.write(Invoked(self.tick(), worker, self._calls, what, surface))
        return self._calls

    def end(self, call: int, outcome: CallOutcome = OK, **answer: Any) -> None:
        self.write(Completed(self.tick(), call, outcome, CallAnswer(**answer)))

    def call(self, what: Call, outcome: CallOutcome = OK, worker: str = "w1", surface: str = "kafka", **answer: Any) -> int:
        call = self.begin(what, worker, surface)
        self.end(call, outcome, **answer)
        return call

    def send(
        self, values: str, at: int = -1, where: str = "t/0", outcome: CallOutcome = OK, worker: str = "w1", **fields: Any
    ) -> int:
        """Send values to one partition, which got the offsets from `at` on."""
        asked = tuple((location(where), value) for value in values.split())
        given = tuple(location(where, at + index if at >= 0 else -1) for index in range(len(asked)))
        locations = given if at >= 0 or outcome is OK else ()
        return self.call(SendCall(asked, **fields), outcome, worker, locations=locations)

    def transaction(self, wrote: str, outcome: CallOutcome = OK, worker: str = "w1", **fields: Any) -> int:
        """Make a transaction of `a@t/0:5 b@u/0:3`; the offsets are in the answer if the outcome is ok."""
        seen = records(wrote, "t/0")
        what = TransactionCall(worker, tuple((one.location._replace(offset=-1), one.value) for one in seen), **fields)
        return self.call(what, outcome, worker, locations=tuple(one.location for one in seen) if outcome is OK else ())

    def poll(
        self, text: str, where: str = "t/0", worker: str = "r1", surface: str = "kafka", session: str = "s", **fields: Any
    ) -> int:
        shown = {name: fields.pop(name) for name in ("key", "cursor") if name in fields}
        return self.call(PollCall(session, **fields), OK, worker, surface, seen=records(text, where, **shown))

    def final(self, text: str, where: str = "t/0", **fields: Any) -> int:
        usual: dict[str, Any] = {"worker": "f1", "session": "final", "committed": True, "final": True}
        return self.poll(text, where, **usual | fields)

    def commit(
        self, offset: int, outcome: CallOutcome = OK, worker: str = "w1", generation: int = -1, reset: bool = False
    ) -> int:
        return self.call(CommitCall("g", (location("t/0", offset),), generation, reset), outcome, worker)

    def committed(self, offset: int) -> int:
        return self.call(CommittedCall("g"), locations=(location("t/0", offset),))

    def owned(self, member: str, generation: int, *partitions: str, worker: str = "r1") -> int:
        return self.call(
            OwnedCall("g", member, generation), OK, worker, locations=tuple(location(where) for where in partitions)
        )

    def bounds(self, start: int, end: int, where: str = "t/0") -> int:
        return self.call(BoundsCall((location(where).topic,)), starts=(location(where, start),), ends=(location(where, end),))

    def change(self, outcome: CallOutcome = OK, **rows: str | None) -> int:
        return self.call(ChangeCall(tuple(("orders", key, value) for key, value in rows.items())), outcome, surface="sql")

    def rows(self, *, final: bool = True, **rows: str) -> int:
        return self.call(RowsCall("orders", final), surface="sql", rows=tuple(rows.items()))

    def events(self, text: str, where: str = "orders.changes/0") -> int:
        """Add final reads of `key=value@offset`, without a value for a delete."""
        seen = []
        for word in text.split():
            row, _, offset = word.partition("@")
            key, _, value = row.partition("=")
            seen.append(SeenRecord(location(where, int(offset)), value, key=key))
        return self.call(PollCall(f"final {where}", committed=True, final=True), worker="f1", seen=tuple(seen))

    def take(self, text: str = "", worker: str = "r1", final: bool = False, where: str = "t/0") -> int:
        return self.call(TakeCall("q", final), OK, worker, "queue", seen=records(text, where))

    def settle(self, values: str, outcome: CallOutcome = OK, worker: str = "r1", acked: bool = True) -> int:
        return self.call(SettleCall("q", tuple(values.split()), acked), outcome, worker, "queue")

    def declare(self, topic: str, **fields: Any) -> None:
        self.write(DeclaredTopic(self.now, topic, **fields))

    def phase(self, name: str) -> None:
        self.write(RunPhase(self.tick(), name))

    def fault(self, kind: str = "kill", **fields: Any) -> None:
        self.write(Fault(self.tick(), kind, **fields))


def violations(story: Story, rule: str) -> list[Violation]:
    """Return what one rule finds."""
    (chosen,) = (one for one in RULES if one.name == rule)
    return list(judge(story.lines, [chosen]).violations)


def broken(story: Story) -> set[str]:
    """Return the names of all rules that a story breaks."""
    return set(judge(story.lines).rules_broken)
