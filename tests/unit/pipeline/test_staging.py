"""What tasks stage is sent in parts and published by its stages, in requests that the server can read."""

from tailrace.api.pipelines import PublishStagesBody, PublishStagesResponse, StagesBody, WriteStagesBody
from tailrace.model.ids import TopicId
from tailrace.model.limits import MIB
from tailrace.pipeline.staging import StagedTask, Stager, discard, publish, write
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk
from tests.unit.pipeline.recorded_requests import RecordingConnection

TASKS = [StagedTask("first", 2, 10), StagedTask("second", 1, 5)]
STAGES = [("first", 2), ("second", 1)]


def test_what_is_staged_is_sent_in_numbered_parts() -> None:
    connection = RecordingConnection()
    batches = [[StagedBatch(TopicId(1), "orders", 0, bytes([number]) * (5 * MIB))] for number in range(2)]
    stager = Stager(connection, "router", "task-1")
    for each in batches:
        stager.add(each, 4)
    assert stager.finish() == StagedTask("task-1", 2, 8)
    assert connection.requests == [
        ("PUT", f"/api/pipelines/router/stages/task-1/{part}", encode_staged_chunk(StagedChunk((), each)))
        for part, each in enumerate(batches)
    ]


def test_a_task_without_batches_sends_nothing() -> None:
    connection = RecordingConnection()
    assert Stager(connection, "router", "task-1").finish() == StagedTask("task-1", 0, 0)
    assert connection.requests == []


def test_stages_are_published_with_the_epoch_of_the_lease() -> None:
    connection = RecordingConnection(PublishStagesResponse(records=15))
    publish(connection, "router", TASKS, 7)
    assert connection.requests == [("POST", "/api/pipelines/router/publish", PublishStagesBody(STAGES, 7))]


def test_a_write_is_repeated_until_it_is_done() -> None:
    connection = RecordingConnection(PublishStagesResponse(is_done=False), PublishStagesResponse(records=15))
    write(connection, "job", TASKS, "batches", 3)
    assert connection.requests == [("POST", "/api/pipelines/job/write", WriteStagesBody(STAGES, "batches", 3))] * 2


def test_stages_that_nobody_needs_are_discarded() -> None:
    connection = RecordingConnection()
    discard(connection, "job", TASKS)
    assert connection.requests == [("POST", "/api/pipelines/job/discard", StagesBody(STAGES))]
