"""Ways to corrupt a correct history, each with the rule that must notice."""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import msgspec

from chaos.history import (
    BoundsCall,
    Call,
    CallAnswer,
    CallOutcome,
    ChangeCall,
    CommitCall,
    CommittedCall,
    Completed,
    HistoryLine,
    Invoked,
    OwnedCall,
    PollCall,
    RecordLocation,
    RowsCall,
    SeenRecord,
    SendCall,
    SettleCall,
    TakeCall,
    TransactionCall,
)
from tests.unit.chaos.model import OWN, ROUTED

replace = msgspec.structs.replace


class Draft:
    """A history that is changed."""

    def __init__(self, lines: Iterable[HistoryLine], seed: int) -> None:
        self.lines = list(lines)
        self.random = Random(seed)
        self.changed = {
            value
            for _, asked, _ in self.calls(ChangeCall)
            if isinstance(asked.what, ChangeCall)
            for _, _, value in asked.what.rows
        }
        self.sent = {
            value for _, asked, _ in self.calls(SendCall) if isinstance(asked.what, SendCall) for _, value in asked.what.records
        }

    def calls(self, kind: type[Call], outcome: CallOutcome = CallOutcome.OK) -> list[tuple[int, Invoked, Completed]]:
        """Return the completed calls of a kind, with the index of their completion."""
        asked = {line.call: line for line in self.lines if isinstance(line, Invoked) and isinstance(line.what, kind)}
        return [
            (index, asked[line.call], line)
            for index, line in enumerate(self.lines)
            if isinstance(line, Completed) and line.call in asked and line.outcome is outcome
        ]

    def answer(self, index: int, **fields: object) -> None:
        line = self.lines[index]
        assert isinstance(line, Completed)
        self.lines[index] = replace(line, answer=replace(line.answer, **fields))

    def polls(self, final: bool) -> list[tuple[int, tuple[SeenRecord, ...]]]:
        return [
            (index, done.answer.seen)
            for index, asked, done in self.calls(PollCall)
            if isinstance(asked.what, PollCall) and asked.what.final is final and not asked.what.subscribed
        ]

    def hide(self, value: str, everywhere: bool = False) -> None:
        """Remove a record from the final reads, or from all reads."""
        for index, asked, done in self.calls(PollCall):
            if everywhere or (isinstance(asked.what, PollCall) and asked.what.final):
                self.answer(index, seen=tuple(one for one in done.answer.seen if one.value != value))

    def final_of(self, partition: tuple[str, int]) -> list[int]:
        """Return the final reads of a partition, on each surface."""
        return [index for index, seen in self.polls(final=True) if seen and seen[0].location[:2] == partition]

    def add(self, what: Call, answer: CallAnswer) -> None:
        time = self.lines[-1].time
        call = max(line.call for line in self.lines if isinstance(line, Invoked)) + 1
        self.lines.append(Invoked(time + 0.1, "late", call, what, "kafka"))
        self.lines.append(Completed(time + 0.2, call, CallOutcome.OK, answer))

    def seen_at(self, index: int) -> tuple[SeenRecord, ...]:
        line = self.lines[index]
        assert isinstance(line, Completed)
        return line.answer.seen


def drop_an_acked_record(draft: Draft) -> None:
    kept = draft.seen_at(draft.final_of(("t", 0))[0])
    draft.hide(draft.random.choice(_sent(draft, kept[: len(kept) // 2])).value)


def drop_the_last_records(draft: Draft) -> None:
    for index in draft.final_of(("t", 0)):
        draft.answer(index, seen=draft.seen_at(index)[: len(draft.seen_at(index)) // 2])


def swap_two_values(draft: Draft) -> None:
    index = draft.final_of(("t", 0))[0]
    one, other, *rest = draft.seen_at(index)
    draft.answer(index, seen=(one._replace(value=other.value), other._replace(value=one.value), *rest))


def store_twice(draft: Draft) -> None:
    for index in draft.final_of(("u", 0)):
        seen = draft.seen_at(index)
        again = seen[0]._replace(location=RecordLocation("u", 0, seen[-1].location.offset + 10), cursor=-1)
        draft.answer(index, seen=(*seen, again))


def show_an_aborted_record(draft: Draft) -> None:
    aborted = [
        (done.answer.locations[0], asked.what.records[0][1])
        for _, asked, done in draft.calls(TransactionCall)
        if isinstance(asked.what, TransactionCall) and asked.what.aborted
    ]
    _show(draft, *draft.random.choice(aborted))


def show_a_refused_record(draft: Draft) -> None:
    sends = [asked.what for _, asked, _ in draft.calls(SendCall, CallOutcome.FAILED) if isinstance(asked.what, SendCall)]
    refused = [record for send in sends for record in send.records if record[0].topic == "t"]
    location, value = draft.random.choice(refused)
    _show(draft, location._replace(offset=100_000), value)


def tear_a_transaction(draft: Draft) -> None:
    whole = [
        asked.what
        for _, asked, _ in draft.calls(TransactionCall)
        if isinstance(asked.what, TransactionCall) and not asked.what.aborted
    ]
    draft.hide(draft.random.choice(whole).records[1][1], everywhere=True)


def forget_a_commit(draft: Draft) -> None:
    index, _, done = draft.calls(CommittedCall)[-1]
    draft.answer(index, locations=tuple(location._replace(offset=-1) for location in done.answer.locations))


def let_a_fenced_member_commit(draft: Draft) -> None:
    draft.add(CommitCall("g", (RecordLocation("t", 0, 1_000_000),), generation=1), CallAnswer())


def give_a_partition_two_owners(draft: Draft) -> None:
    _, asked, done = next(call for call in draft.calls(OwnedCall) if call[2].answer.locations)
    assert isinstance(asked.what, OwnedCall)
    draft.add(replace(asked.what, member="m3"), done.answer)


def jump_over_a_record(draft: Draft) -> None:
    polls = [(index, seen, _sent(draft, seen[1:-1])) for index, seen in draft.polls(final=False) if len(seen) > 2]
    index, seen, middle = draft.random.choice([poll for poll in polls if poll[2]])
    draft.answer(index, seen=tuple(one for one in seen if one != middle[0]))


def step_back(draft: Draft) -> None:
    index, seen = draft.random.choice([(index, seen) for index, seen in draft.polls(final=False) if len(seen) > 1])
    draft.answer(index, seen=(seen[1], seen[0], *seen[2:]))


def give_a_later_send_a_lower_offset(draft: Draft) -> None:
    sends = [
        (index, asked, done)
        for index, asked, done in draft.calls(SendCall)
        if asked.worker == "sender1" and done.answer.locations[0].topic == "u"
    ]
    (one, _, first), (other, _, second) = sends[3], sends[-1]
    draft.answer(one, locations=(second.answer.locations[0], *first.answer.locations[1:]))
    draft.answer(other, locations=(first.answer.locations[0], *second.answer.locations[1:]))


def let_an_end_fall(draft: Draft) -> None:
    index, _, done = draft.calls(BoundsCall)[-1]
    draft.answer(index, ends=tuple(location._replace(offset=location.offset - 1) for location in done.answer.ends))


def let_a_start_fall(draft: Draft) -> None:
    index, _, done = draft.calls(BoundsCall)[-1]
    draft.answer(index, starts=tuple(location._replace(offset=0) for location in done.answer.starts))


def hide_a_record_on_one_surface(draft: Draft) -> None:
    index = draft.final_of(("t", 1))[1]
    seen = draft.seen_at(index)
    middle = len(seen) // 2
    draft.answer(index, seen=(*seen[:middle], *seen[middle + 1 :]))


def lose_a_change(draft: Draft) -> None:
    events = draft.seen_at(draft.final_of(OWN)[0])
    draft.hide(next(event.value for event in events if event.value in draft.changed))


def forget_a_change_of_a_row(draft: Draft) -> None:
    index, _, done = draft.calls(RowsCall)[-1]
    (key, _), *rest = done.answer.rows
    first = next(
        event.value for event in draft.seen_at(draft.final_of(OWN)[0]) if event.key == key and event.value in draft.changed
    )
    draft.answer(index, rows=((key, first), *rest))


def route_a_change_twice(draft: Draft) -> None:
    for index in draft.final_of(ROUTED):
        seen = draft.seen_at(index)
        draft.answer(index, seen=(*seen, seen[0]._replace(location=RecordLocation(*ROUTED, len(seen)), cursor=-1)))


def hand_out_an_acked_record(draft: Draft) -> None:
    acked = {
        value
        for _, asked, _ in draft.calls(SettleCall)
        if isinstance(asked.what, SettleCall) and asked.what.acked
        for value in asked.what.values
    }
    taken = next(one for _, _, done in draft.calls(TakeCall) for one in done.answer.seen if one.value in acked)
    draft.add(TakeCall("q"), CallAnswer(seen=(taken,)))


def _show(draft: Draft, location: RecordLocation, value: str) -> None:
    """Let final reads find the record after everything else."""
    for index in draft.final_of(location[:2]):
        draft.answer(index, seen=(*draft.seen_at(index), SeenRecord(location, value)))


def _sent(draft: Draft, seen: Iterable[SeenRecord]) -> list[SeenRecord]:
    """Return the records of acked sends."""
    return [one for one in seen if one.value in draft.sent]


class Corruption(NamedTuple):
    spoil: Callable[[Draft], None]
    rule: str


CORRUPTIONS = (
    Corruption(drop_an_acked_record, "lost-write"),
    Corruption(drop_the_last_records, "unseen"),
    Corruption(swap_two_values, "inconsistent-offset"),
    Corruption(store_twice, "duplicate"),
    Corruption(show_an_aborted_record, "aborted-read"),
    Corruption(show_a_refused_record, "aborted-read"),
    Corruption(give_a_later_send_a_lower_offset, "nonmonotonic-send"),
    Corruption(jump_over_a_record, "poll-skip"),
    Corruption(step_back, "int-nonmonotonic-poll"),
    Corruption(let_an_end_fall, "stale-end"),
    Corruption(give_a_partition_two_owners, "two-owners"),
    Corruption(let_a_fenced_member_commit, "fenced-commit"),
    Corruption(forget_a_commit, "commit-lost"),
    Corruption(tear_a_transaction, "torn-transaction"),
    Corruption(let_a_start_fall, "falling-start"),
    Corruption(hide_a_record_on_one_surface, "hidden-on-surface"),
    Corruption(forget_a_change_of_a_row, "stale-row"),
    Corruption(lose_a_change, "lost-change"),
    Corruption(route_a_change_twice, "routed-otherwise"),
    Corruption(hand_out_an_acked_record, "redelivered"),
)
