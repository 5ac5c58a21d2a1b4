"""The outcome that a worker of `make chaos` records: failed only if nothing can have happened."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from chaos.api import RefusedError, RunApi
from chaos.history import BoundsCall, CallAnswer, CallOutcome, Completed, Invoked, PollCall, read_lines
from chaos.recorder import Recorder
from chaos.workers.librdkafka import outcome_of
from chaos.workers.worker import call_with_timeout
from tests.support.ports import free_port

PROBLEM = '{"type": "urn:tailrace:error:overloaded", "detail": "later", "outcome": "%s"}'


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serves one request with this response, then closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def refused(url: str) -> RefusedError:
    with RunApi(url) as api, pytest.raises(RefusedError) as raised:
        api.post("/api/topics/publish", {})
    return raised.value


def http(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


def test_a_request_that_found_no_server_has_failed() -> None:
    assert refused(f"http://127.0.0.1:{free_port()}").outcome is CallOutcome.FAILED


def test_a_request_whose_answer_was_lost_is_unknown() -> None:
    with answering(b"") as url:
        assert refused(url).outcome is CallOutcome.UNKNOWN


@pytest.mark.parametrize("outcome", [CallOutcome.FAILED, CallOutcome.UNKNOWN])
def test_an_error_of_the_server_is_what_the_server_says_it_is(outcome: CallOutcome) -> None:
    with answering(http("503 Service Unavailable", PROBLEM % outcome)) as url:
        assert refused(url).outcome is outcome


def test_an_error_that_is_not_explained_is_unknown() -> None:
    with answering(http("502 Bad Gateway", "<html>")) as url:
        assert refused(url).outcome is CallOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError._QUEUE_FULL, CallOutcome.FAILED),
        (KafkaError.MSG_SIZE_TOO_LARGE, CallOutcome.FAILED),
        (KafkaError._MSG_TIMED_OUT, CallOutcome.UNKNOWN),
        (KafkaError._PURGE_INFLIGHT, CallOutcome.UNKNOWN),
        (KafkaError.REQUEST_TIMED_OUT, CallOutcome.UNKNOWN),
    ],
)
def test_a_record_that_was_not_delivered_is_unknown_unless_it_was_never_stored(code: int, outcome: CallOutcome) -> None:
    assert outcome_of(KafkaError(code)) is outcome


def test_a_call_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        call_with_timeout(0.05, release.wait)
    release.set()
    assert call_with_timeout(10, lambda: 7) == 7


def test_the_history_holds_what_was_asked_and_what_came_of_it(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        asked = recorder.invoke("asker", "http", BoundsCall(("t",)))
        recorder.observe(0.0, "reader", "kafka-librdkafka", PollCall("s"), CallAnswer())
        recorder.complete(asked, CallOutcome.UNKNOWN, error="lost")
    first, second, third, fourth = read_lines(tmp_path / "history.jsonl")
    assert isinstance(first, Invoked) and isinstance(second, Invoked)
    assert isinstance(third, Completed) and isinstance(fourth, Completed)
    assert (first.what, first.call) == (BoundsCall(("t",)), asked)
    assert (second.time, third.call, third.outcome) == (0.0, second.call, CallOutcome.OK)
    assert (fourth.call, fourth.outcome, fourth.error) == (asked, CallOutcome.UNKNOWN, "lost")
    assert recorder.outcomes == {CallOutcome.OK: 1, CallOutcome.UNKNOWN: 1}
