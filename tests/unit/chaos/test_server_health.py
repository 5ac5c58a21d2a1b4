"""I16 to I18: resources, liveness and the files."""

import pytest

from chaos.checker.availability import Availability
from chaos.checker.timeline import Timeline
from chaos.history import Fault, FsckInspection, ResourceSample, ServerStopped
from tests.unit.chaos.histories import UNKNOWN, Story, violations

MIB = 1024 * 1024


def sends_every(story: Story, seconds: float, until: float) -> None:
    while story.now + seconds <= until:
        story.tick(seconds - 0.2)
        story.send(f"v{story.now}")


def test_a_server_that_answers_all_the_time_passes() -> None:
    story = Story()
    sends_every(story, 9, until=100)
    assert not violations(story, "unavailable")


def test_silence_without_a_fault_is_named() -> None:
    story = Story()
    sends_every(story, 5, until=20)
    story.tick(11)
    story.send("after")
    (violation,) = violations(story, "unavailable")
    assert violation.begins == 20.0


@pytest.mark.parametrize(("started", "wrong"), [(31.0, False), (22.0, False), (20.5, True)])
def test_a_fault_excuses_silence_and_thirty_seconds_after_it(started: float, wrong: bool) -> None:
    story = Story()
    sends_every(story, 5, until=20)
    story.write(Fault(20.1, "kill", until=51.0, ready=51.0, started=started, down=True))
    story.tick(31)
    story.send("after")
    assert bool(violations(story, "unavailable")) is wrong


def test_failures_and_empty_polls_are_no_signs_of_life() -> None:
    story = Story()
    story.send("a")
    for _ in range(12):
        story.tick(0.8)
        story.send(f"v{story.now}", outcome=UNKNOWN)
        story.tick(0.1)
        story.poll("")
    assert violations(story, "unavailable")


@pytest.mark.parametrize("answered", [True, False])
def test_each_surface_is_back_thirty_seconds_after_the_faults(answered: bool) -> None:
    story = Story()
    story.phase("heal")
    for _ in range(5):
        story.tick(8)
        story.send(f"v{story.now}")
        story.poll("a@0" if answered else "", surface="http", session=f"s{story.now}")
    messages = [violation.message for violation in violations(story, "slow-recovery")]
    assert messages == ([] if answered else ["nothing succeeded by http within 30 s after all faults had been taken back"])


def test_a_surface_that_was_not_in_use_has_nothing_to_recover() -> None:
    story = Story()
    story.phase("heal")
    sends_every(story, 5, until=40)
    story.final("a@0", surface="sql")
    assert not violations(story, "slow-recovery")


@pytest.mark.parametrize(("seconds", "code", "wrong"), [(9.9, 0, False), (10.1, 0, True), (1.0, 1, True)])
def test_a_stop_takes_ten_seconds_and_ends_well(seconds: float, code: int, wrong: bool) -> None:
    story = Story()
    story.write(ServerStopped(1.0, seconds, code))
    assert bool(violations(story, "slow-stop")) is wrong


@pytest.mark.parametrize(
    ("end", "grown"),
    [
        (ResourceSample(0, 250 * MIB, 60, 30, 0), []),
        (ResourceSample(0, 500 * MIB, 60, 30, 0), ["MiB of memory"]),
        (ResourceSample(0, 250 * MIB, 600, 30, 0), ["open files"]),
        (ResourceSample(0, 250 * MIB, 60, 90, 0), ["threads"]),
    ],
)
def test_what_does_not_come_back_to_its_base_is_a_leak(end: ResourceSample, grown: list[str]) -> None:
    story = Story()
    for name, rss, files, threads in (
        ("steady", 200 * MIB, 50, 20),
        ("faults", 900 * MIB, 900, 90),
        ("heal", 900 * MIB, 900, 90),
        ("final", end.rss_bytes, end.files, end.threads),
    ):
        story.phase(name)
        for _ in range(4):
            story.write(ResourceSample(story.tick(), rss, files, threads, 0))
    found = [violation.message for violation in violations(story, "leak")]
    assert [what for what in ("MiB of memory", "open files", "threads") if any(what in text for text in found)] == grown


def test_findings_of_fsck_are_named_unless_files_were_damaged_on_purpose() -> None:
    story = Story()
    story.write(FsckInspection(1.0))
    story.write(FsckInspection(2.0, ("segment 3: bad checksum",), damaged=True))
    assert not violations(story, "fsck-finding")
    assert not violations(story, "damage-not-found")
    story.write(FsckInspection(3.0, ("segment 4: bad checksum",)))
    story.write(FsckInspection(4.0, damaged=True))
    assert [violation.begins for violation in violations(story, "fsck-finding")] == [3.0]
    assert [violation.begins for violation in violations(story, "damage-not-found")] == [4.0]


def test_recoveries_are_measured_from_when_the_server_was_started_again() -> None:
    story = Story()
    sends_every(story, 1, until=5)
    story.write(Fault(5.1, "kill", until=8.0, ready=8.0, started=7.0, down=True))
    story.write(Fault(5.2, "delay", until=6.0))
    story.tick(3.8)
    story.send("after")
    story.send("and on")
    availability = Availability(Timeline(story.lines))
    assert [(recovery.fault.kind, round(recovery.seconds, 3)) for recovery in availability.recoveries()] == [("kill", 2.0)]
    assert round(availability.longest_silence.seconds, 3) == 4.0
