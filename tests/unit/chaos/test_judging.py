"""Verdicts, windows, and judging an old run again."""

from pathlib import Path

import msgspec
import pytest

from chaos.checker.judging import judge
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Verdict, window
from chaos.history import CallOutcome, Completed, Fault, PollCall, write_lines
from chaos.judge import main
from chaos.run_record import Mutant, RunRecord, write_record
from tests.unit.chaos.histories import FAILED, UNKNOWN, Story

RECORD = RunRecord(
    seed=77,
    profile="short",
    workloads=("queue",),
    minutes=2,
    faults=("kill",),
    began="2026-01-31T12:00:00Z",
    commit="abc123",
    versions={"python": "3.11"},
    machine="2 cores",
)


def good_story() -> Story:
    story = Story()
    story.send("a b", at=0)
    story.final("a@0 b@1")
    return story


def lost_story() -> Story:
    story = Story()
    story.fault("pause", until=0.15)
    story.send("a", at=0)
    story.send("b", at=1)
    story.fault("kill", detail="at sync", ready=story.now + 0.2)
    story.send("c", at=2)
    story.final("b@1 c@2")
    return story


def test_a_history_without_violations_and_doubts_passes() -> None:
    assert judge(good_story().lines).verdict is Verdict.PASS


def test_no_history_is_no_proof() -> None:
    judgement = judge([])
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.doubts == ("no call succeeded",)


def test_without_final_reads_the_verdict_is_unknown() -> None:
    story = Story()
    story.send("a", at=0)
    assert judge(story.lines).verdict is Verdict.UNKNOWN
    story.final("a@0", final=False)
    assert judge(story.lines).verdict is Verdict.UNKNOWN


def test_final_reads_that_failed_on_a_surface_are_in_doubt() -> None:
    story = good_story()
    failed = story.call(PollCall("by http", committed=True, final=True), UNKNOWN, surface="http")
    assert judge(story.lines).doubts == (f"the final read of call {failed} by http did not succeed",)
    story.final("a@0 b@1", surface="http", session="by http")
    assert judge(story.lines).verdict is Verdict.PASS


def test_a_queue_that_was_not_emptied_is_in_doubt() -> None:
    story = good_story()
    story.take("a@0 b@1", final=True)
    story.settle("a b")
    assert judge(story.lines).doubts == ("the queue of group q was not emptied at the end",)
    story.take(final=True)
    assert judge(story.lines).verdict is Verdict.PASS


def test_values_that_are_not_unique_prove_nothing() -> None:
    story = good_story()
    story.send("a", at=2)
    assert "'a' was sent by call 1 and by call 3: values must be unique" in judge(story.lines).doubts


def test_a_table_that_is_not_read_at_the_end_is_in_doubt() -> None:
    story = Story()
    story.change(k="v1")
    story.rows(final=False, k="v1")
    assert judge(story.lines).doubts == ("table orders was written, but not read at the end",)


def test_a_history_in_which_a_call_is_completed_twice_is_in_doubt() -> None:
    story = good_story()
    story.end(1, FAILED)
    judgement = judge(story.lines)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "call 1 was completed" in judgement.doubts[0]


def test_lines_may_stand_in_any_order() -> None:
    story = lost_story()
    assert judge(reversed(story.lines)) == judge(story.lines)


def test_violations_come_in_the_order_in_which_they_came_to_light() -> None:
    story = Story()
    story.send("a b c", at=0)
    story.poll("a@0")
    story.poll("c@2")
    story.final("b@1 c@2")
    assert judge(story.lines).rules_broken == ("poll-skip", "lost-write")


def test_a_window_has_the_calls_that_matter_and_the_faults_between() -> None:
    story = Story()
    story.fault("early")
    story.send("a", at=0)
    story.fault("kill", detail="at sync")
    story.send("b", at=0, worker="w2")
    story.send("c", at=1)
    story.fault("late")
    timeline = Timeline(story.lines)
    first, *_ = judge(story.lines).violations
    text = list(window(timeline, first))
    assert [line.split()[1:3] for line in text] == [
        ["call", "1"],
        ["call", "1"],
        ["fault", "kill"],
        ["call", "2"],
        ["call", "2"],
    ]


def test_a_fault_that_lasts_into_a_window_is_in_it() -> None:
    story = lost_story()
    story.write(Fault(0.0, "slow disk", until=100.0))
    timeline = Timeline(story.lines)
    assert any("slow disk" in line for line in window(timeline, judge(story.lines).violations[0]))


def test_a_window_leaves_out_the_other_records_of_an_answer() -> None:
    story = Story()
    story.send("bad", outcome=FAILED)
    story.final(" ".join(f"v{number}@{number}" for number in range(500)) + " bad@500")
    first, *_ = (violation for violation in judge(story.lines).violations if violation.rule == "aborted-read")
    *_, last = window(Timeline(story.lines), first)
    assert "t/0@500=bad and 500 more" in last


def test_an_old_run_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history.jsonl").write_bytes(write_lines(lost_story().lines))
    write_record(tmp_path, RECORD)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "seed: 77, profile: short, commit: abc123"
    assert said[1] == "verdict: fail, by 4 calls"
    assert said[2] == "broken: lost-write (1)"
    assert said[3].startswith("first violation: lost-write (I1): 'a' was at t/0 offset 0")
    assert any("fault  kill at sync" in line for line in said)


def test_a_file_of_lines_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(write_lines(good_story().lines) + b'{"type":"phase","time":9')
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == "verdict: pass, by 2 calls\n"


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "there is no history at" in capsys.readouterr().err


def test_a_mutant_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history.jsonl").write_bytes(write_lines(lost_story().lines))
    mutant = Mutant("ack-before-sync", "acks before the sync", ("lost-write",))
    write_record(tmp_path, msgspec.structs.replace(RECORD, mutant=mutant))
    main([str(tmp_path)])
    assert "server broken on purpose: ack-before-sync" in capsys.readouterr().out


def test_a_completion_before_its_invocation_is_in_doubt() -> None:
    story = good_story()
    story.write(Completed(0.0, 99, CallOutcome.OK))
    assert judge(story.lines).verdict is Verdict.UNKNOWN
