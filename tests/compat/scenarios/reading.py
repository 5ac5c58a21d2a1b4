"""Where to begin reading, and what is where."""

from tempfile import TemporaryDirectory

from tests.compat.contract import MISSING, Bounds, Outgoing, Start
from tests.compat.scenarios.stage import BEGINNING, HOUR_MS, SOME_TIME_MS, Scenario, Stage, values


def seek_offset(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    assert values(stage.client.read(topic=stage.topic, partition=0, start=Start("offset", 2), count=3)) == ["c", "d", "e"]


def seek_time(stage: Stage) -> None:
    stage.create()
    stage.fill_hourly(6)
    start = Start("time", SOME_TIME_MS + 2 * HOUR_MS + 1)
    assert values(stage.client.read(topic=stage.topic, partition=0, start=start, count=3)) == ["3", "4", "5"]


def seek_ends(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    stage.referee.delete_records(stage.topic, 0, 2)
    assert stage.client.position(topic=stage.topic, partition=0, start=BEGINNING) == 2
    assert stage.client.position(topic=stage.topic, partition=0, start=Start("end")) == 6


def offsets_by_time(stage: Stage) -> None:
    stage.create()
    stage.fill_hourly(6)
    asked = stage.client.offset_for_time
    assert asked(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 2 * HOUR_MS) == 2
    assert asked(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 2 * HOUR_MS + 1) == 3
    assert asked(topic=stage.topic, partition=0, timestamp_ms=SOME_TIME_MS + 9 * HOUR_MS) == MISSING


def list_offsets(stage: Stage) -> None:
    stage.create()
    stage.fill(*"abcdef")
    stage.referee.delete_records(stage.topic, 0, 4)
    assert stage.client.bounds(topic=stage.topic, partition=0) == Bounds(4, 6)


def stream(stage: Stage) -> None:
    stage.create()
    target = f"{stage.topic}.copy"
    stage.referee.create_topic(target, 1, {})
    with TemporaryDirectory() as checkpoint:
        for values_ in (["a", "b", "c"], ["d", "e"]):
            stage.fill(*values_)
            stage.client.stream(source=stage.topic, target=target, checkpoint=checkpoint)
    assert values(stage.referee.read(target, 0, BEGINNING, 5)) == ["A", "B", "C", "D", "E"]
    assert stage.referee.bounds(target, 0).latest == 5


def newest(stage: Stage) -> None:
    """The record with the highest timestamp, which is not the last one."""
    stage.create()
    stage.fill_hourly(6)
    stage.referee.produce(stage.topic, [Outgoing(value=b"late", partition=0, timestamp_ms=SOME_TIME_MS)])
    assert stage.client.newest(topic=stage.topic, partition=0) == 5


SCENARIOS = (
    Scenario("seek-offset", "Read from an offset", "Fetch", seek_offset),
    Scenario("seek-time", "Read from a time", "ListOffsets, Fetch", seek_time),
    Scenario("seek-ends", "Seek to the beginning and to the end", "ListOffsets", seek_ends),
    Scenario("offsets-by-time", "Look up offsets by time", "ListOffsets", offsets_by_time),
    Scenario("list-offsets", "List the first and the last offset", "ListOffsets", list_offsets),
    Scenario("stream", "A streaming query goes on from its checkpoint", "ListOffsets, Fetch, Produce", stream),
    Scenario("newest", "Find the record with the highest timestamp", "ListOffsets", newest),
)
