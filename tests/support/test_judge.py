"""The judge of crashed folders: it accepts what is right and names what is wrong."""

from collections.abc import Sequence

from tailrace.model.commit import OffsetBounds
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.store.memory import MemoryStore
from tests.support import judge as rules
from tests.support.batches import StoredRecord
from tests.support.history import Ack, Attempt, CommitId, Failure, History, decode_event, encode_event, last_key, to_changes
from tests.support.judge import judge, judge_acks
from tests.support.observed import Observed, SeenBatch, observe

A, B, SCRATCH = 1, 2, 9
A0, B0 = PartitionId(TopicId(A), 0), PartitionId(TopicId(B), 0)


class Story:
    """Two threads' commits on a store that works, and the history of them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.history = History()
        self.attempt(1, 1, creates=[(A, 1), (B, 1), (SCRATCH, 1)], puts=[("note/1", "x")])
        self.attempt(1, 2, appends=[(A, 0, ["1.2.a", "1.2.b"]), (B, 0, ["1.2.c"])])
        self.attempt(2, 1, appends=[(B, 0, ["2.1.a"]), (SCRATCH, 0, ["2.1.b"])], puts=[("note/2", "y"), ("p/2", "")])
        self.attempt(2, 2, drops=[SCRATCH], drop_prefixes=["p/"])
        self.attempt(1, 3, trims=[(A, 0, 2)], appends=[(A, 0, ["1.3.a", "1.3.b", "1.3.c"])], puts=[("note/1", None)])
        self.attempt(2, 3, appends=[(A, 0, ["2.3.a"]), (B, 0, ["2.3.b", "2.3.c"])])

    def attempt(
        self,
        thread: int,
        number: int,
        *,
        creates: Sequence[tuple[int, int]] = (),
        drops: Sequence[int] = (),
        trims: Sequence[tuple[int, int, int]] = (),
        appends: Sequence[tuple[int, int, Sequence[str]]] = (),
        drop_prefixes: Sequence[str] = (),
        puts: Sequence[tuple[str, str | None]] = (),
    ) -> None:
        marked = [*puts, (last_key(1, thread), str(number))]
        attempt = Attempt(CommitId(1, thread, number), creates, drops, trims, appends, drop_prefixes, marked)
        receipt = self.store.commit(to_changes(attempt))
        self.history.record(attempt)
        self.history.record(Ack(attempt.id, receipt.cursor, receipt.hlc, receipt.offsets))

    def forget_answer(self, thread: int, number: int) -> None:
        id = CommitId(1, thread, number)
        del self.history.acks[id], self.history.places[id]

    def seen(self) -> Observed:
        return observe(self.store)

    def rules_broken_by(self, seen: Observed, *, may_lose_tail: bool = False) -> set[str]:
        return judge(self.history, seen, may_lose_tail=may_lose_tail).rules


def _without(seen: Observed, *cursors: int) -> Observed:
    return _with_log(seen, [batch for batch in seen.scanned if batch.cursor not in cursors])


def _with_log(seen: Observed, log: Sequence[SeenBatch]) -> Observed:
    fetched = {
        partition: [record for batch in log if batch.partition == partition for record in batch.records]
        for partition in seen.partitions
    }
    return seen._replace(scanned=log, fetched=fetched)


def _with_state(seen: Observed, key: str, value: bytes | None) -> Observed:
    state = {name: held for name, held in seen.state.items() if name != key.encode()}
    return seen._replace(state=state if value is None else {**state, key.encode(): value})


def test_a_history_that_went_well_is_accepted() -> None:
    story = Story()
    verdict = judge(story.history, story.seen())
    assert verdict.violations == []
    assert verdict.last == {(1, 1): 3, (1, 2): 3}
    assert verdict.places[CommitId(1, 2, 3)] == (8, (5, 2))


def test_an_unanswered_commit_may_be_there_whole() -> None:
    story = Story()
    story.forget_answer(2, 3)
    verdict = judge(story.history, story.seen())
    assert verdict.violations == []
    assert verdict.places[CommitId(1, 2, 3)] == (8, (5, 2))


def test_an_unanswered_commit_may_be_absent() -> None:
    story = Story()
    story.history.record(Attempt(CommitId(1, 2, 4), appends=[(A, 0, ["2.4.a"])], puts=[(last_key(1, 2), "4")]))
    assert story.rules_broken_by(story.seen()) == set()


def test_an_acknowledged_commit_that_is_gone_is_a_lost_commit() -> None:
    story = Story()
    seen = _with_state(_without(story.seen(), 8, 9), last_key(1, 2), b"2")
    bounds = {A0: OffsetBounds(Offset(2), Offset(5)), B0: OffsetBounds(Offset(0), Offset(2))}
    gone = seen._replace(end_cursor=8, partitions=bounds, next_offsets={A0: 5, B0: 2})
    assert story.rules_broken_by(gone) == {rules.LOST_COMMIT}
    assert story.rules_broken_by(gone, may_lose_tail=True) == set()


def test_losing_the_middle_is_never_allowed() -> None:
    story = Story()
    seen = _with_state(_without(story.seen(), 5), last_key(1, 1), b"2")
    assert {rules.CURSOR_GAP, rules.OFFSET_GAP} <= story.rules_broken_by(seen, may_lose_tail=True)


def test_a_missing_record_of_a_commit_that_is_there_is_a_lost_record() -> None:
    story = Story()
    assert rules.LOST_RECORD in story.rules_broken_by(_without(story.seen(), 2))


def test_records_without_their_state_are_half_a_commit() -> None:
    story = Story()
    story.forget_answer(2, 3)
    assert rules.HALF_COMMIT in story.rules_broken_by(_with_state(story.seen(), last_key(1, 2), b"2"))


def test_a_batch_with_a_record_too_few_is_half_a_commit() -> None:
    story = Story()
    seen = story.seen()
    cut = [batch._replace(records=batch.records[:-1]) if batch.cursor == 9 else batch for batch in seen.scanned]
    assert story.rules_broken_by(_with_log(seen, cut)) == {rules.HALF_COMMIT}


def test_a_record_at_another_place_than_acknowledged_is_a_moved_record() -> None:
    story = Story()
    seen = story.seen()
    moved = [batch._replace(cursor=batch.cursor + 1) if batch.cursor >= 8 else batch for batch in seen.scanned]
    assert story.rules_broken_by(seen._replace(scanned=moved)) == {rules.MOVED_RECORD}


def test_a_record_that_is_there_twice_is_a_duplicate() -> None:
    story = Story()
    seen = story.seen()
    again = seen.scanned[-1]._replace(cursor=11)
    assert story.rules_broken_by(_with_log(seen, [*seen.scanned, again])) == {rules.DUPLICATE_RECORD}


def test_a_record_that_nobody_sent_is_a_phantom() -> None:
    story = Story()
    seen = story.seen()
    del story.history.attempts[CommitId(1, 2, 3)], story.history.acks[CommitId(1, 2, 3)]
    assert rules.PHANTOM_RECORD in story.rules_broken_by(seen)


def test_a_changed_byte_is_named() -> None:
    story = Story()
    seen = story.seen()
    batch = seen.scanned[-1]
    record = batch.records[0]
    rotten = batch._replace(records=[record._replace(value=record.value[:-1] + b"?"), *batch.records[1:]])
    assert rules.WRONG_BYTES in story.rules_broken_by(_with_log(seen, [*seen.scanned[:-1], rotten]))


def test_a_dropped_topic_that_is_served_again_is_named() -> None:
    story = Story()
    before_drop = Story()
    seen = before_drop.seen()
    dead = seen.scanned[0]._replace(
        cursor=4, partition=PartitionId(TopicId(SCRATCH), 0), records=_records_of("2.1.b"), hlc=seen.scanned[1].hlc
    )
    log = sorted([*seen.scanned, dead])
    assert rules.DEAD_RECORD in story.rules_broken_by(seen._replace(scanned=log))


def test_a_trimmed_record_that_is_served_again_is_named() -> None:
    story = Story()
    untrimmed = Story()
    untrimmed.store = MemoryStore()
    for attempt in untrimmed.history.attempts.values():
        untrimmed.store.commit(to_changes(attempt)._replace(trims=[]))
    broken = story.rules_broken_by(untrimmed.seen())
    assert broken == {rules.DEAD_RECORD, rules.WRONG_START}


def test_a_commit_that_comes_back_after_it_was_seen_missing_is_late() -> None:
    story = Story()
    story.forget_answer(2, 3)
    story.history.settle({(1, 1): 3, (1, 2): 2}, story.history.places)
    assert rules.LATE_COMMIT in story.rules_broken_by(story.seen())


def test_a_commit_that_was_seen_and_is_gone_later_is_lost() -> None:
    story = Story()
    story.history.settle({(1, 1): 3, (1, 2): 4}, story.history.places)
    assert rules.LOST_COMMIT in story.rules_broken_by(story.seen(), may_lose_tail=True)


def test_a_commit_that_failed_for_sure_must_not_be_seen() -> None:
    story = Story()
    story.forget_answer(2, 3)
    story.history.record(Failure(CommitId(1, 2, 3), "failed", "no room"))
    assert rules.FAILED_COMMIT in story.rules_broken_by(story.seen())


def test_an_unknown_failure_says_nothing_about_the_commit() -> None:
    story = Story()
    story.forget_answer(2, 3)
    story.history.record(Failure(CommitId(1, 2, 3), "unknown", "the disk failed"))
    assert story.rules_broken_by(story.seen()) == set()


def test_an_offset_given_twice_is_named() -> None:
    story = Story()
    seen = story.seen()
    reused = [
        batch._replace(records=[record._replace(offset=record.offset - 1) for record in batch.records])
        if batch.cursor == 8
        else batch
        for batch in seen.scanned
    ]
    story.forget_answer(2, 3)
    assert rules.OFFSET_REUSED in story.rules_broken_by(_with_log(seen, reused))


def test_an_end_beyond_the_records_is_a_gap() -> None:
    story = Story()
    seen = story.seen()
    assert story.rules_broken_by(seen._replace(end_cursor=12)) == {rules.CURSOR_GAP}
    ahead = seen._replace(partitions={**seen.partitions, A0: OffsetBounds(Offset(2), Offset(7))}, next_offsets={A0: 7, B0: 4})
    assert story.rules_broken_by(ahead) == {rules.OFFSET_GAP}


def test_a_cursor_given_twice_is_named() -> None:
    story = Story()
    seen = story.seen()
    story.forget_answer(2, 3)
    back = [batch._replace(cursor=batch.cursor - 1) if batch.cursor >= 8 else batch for batch in seen.scanned]
    assert rules.CURSOR_REUSED in story.rules_broken_by(_with_log(seen, back))


def test_timestamps_that_step_back_are_named() -> None:
    story = Story()
    seen = story.seen()
    stepped = [*seen.scanned[:-1], seen.scanned[-1]._replace(hlc=1)]
    assert story.rules_broken_by(seen._replace(scanned=stepped)) == {rules.CLOCK_STEP}


def test_state_that_differs_is_named_by_its_key() -> None:
    story = Story()
    verdict = judge(story.history, _with_state(story.seen(), "note/2", b"z"))
    assert verdict.rules == {rules.WRONG_STATE}
    assert "note/2" in str(verdict)
    assert story.rules_broken_by(_with_state(story.seen(), "note/2", None)) == {rules.WRONG_STATE}
    assert story.rules_broken_by(_with_state(story.seen(), "p/2", b"")) == {rules.WRONG_STATE}


def test_a_missing_topic_and_a_wrong_start_are_named() -> None:
    story = Story()
    seen = story.seen()
    extra = {**seen.partitions, PartitionId(TopicId(SCRATCH), 0): OffsetBounds(Offset(0), Offset(0))}
    fetched = {**seen.fetched, PartitionId(TopicId(SCRATCH), 0): []}
    nexts = {**seen.next_offsets, PartitionId(TopicId(SCRATCH), 0): 0}
    broken = story.rules_broken_by(seen._replace(partitions=extra, fetched=fetched, next_offsets=nexts))
    assert rules.WRONG_TOPICS in broken
    wrong = seen._replace(partitions={**seen.partitions, A0: OffsetBounds(Offset(1), Offset(6))})
    assert story.rules_broken_by(wrong) == {rules.WRONG_START}


def test_fetch_and_scan_that_differ_are_named() -> None:
    story = Story()
    seen = story.seen()
    fetched = {**seen.fetched, B0: seen.fetched[B0][:-1]}
    assert story.rules_broken_by(seen._replace(fetched=fetched)) == {rules.VIEWS_DIFFER}


def test_two_answers_with_the_same_place_are_named_whatever_the_store_holds() -> None:
    story = Story()
    assert judge_acks(story.history) == []
    story.history.record(Attempt(CommitId(1, 2, 4), appends=[(A, 0, ["2.4.a"])]))
    story.history.record(Ack(CommitId(1, 2, 4), cursor=11, hlc=1, offsets=[5]))
    assert {violation.rule for violation in judge_acks(story.history)} == {rules.OFFSET_REUSED}
    story.history.record(Ack(CommitId(1, 2, 4), cursor=10, hlc=1, offsets=[6]))
    assert {violation.rule for violation in judge_acks(story.history)} == {rules.CURSOR_REUSED}


def test_events_travel_as_lines() -> None:
    story = Story()
    events: list[Attempt | Ack | Failure] = [*story.history.attempts.values(), *story.history.acks.values()]
    events.append(Failure(CommitId(1, 1, 1), "failed", "x"))
    for event in events:
        line = encode_event(event)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert encode_event(decode_event(line)) == line


def _records_of(*tokens: str) -> Sequence[StoredRecord]:
    store = MemoryStore()
    scratch = TopicId(SCRATCH)
    store.commit(to_changes(Attempt(CommitId(0, 0, 0), creates=[(scratch, 1)], appends=[(scratch, 0, tokens)])))
    return observe(store).scanned[0].records
