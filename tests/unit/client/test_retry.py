"""When a request is retried, and which error is raised in the end."""

from datetime import timedelta

from tailrace.client.config import ConnectionConfig
from tailrace.client.errors import error_from_response
from tailrace.client.retry import Attempts
from tailrace.http.problems import error_body
from tailrace.model.errors import (
    ConnectionLostError,
    InvalidRequestError,
    QuotaExceededError,
    ServerUnreachableError,
    UnknownTopicError,
)

LOST = ConnectionLostError("the connection broke")
UNREACHABLE = ServerUnreachableError("no server")
REFUSED = InvalidRequestError("wrong")


def patient() -> Attempts:
    return Attempts(ConnectionConfig(api_timeout=timedelta(hours=1)))


def test_what_may_go_away_by_waiting_is_tried_again_until_the_time_is_up() -> None:
    assert patient().pause_after(UNREACHABLE) is not None
    assert Attempts(ConnectionConfig(), retry_seconds=0.0).pause_after(UNREACHABLE) is None


def test_what_waiting_does_not_cure_is_not_tried_again() -> None:
    assert patient().pause_after(REFUSED) is None
    assert patient().pause_after(UnknownTopicError("no such topic")) is None


def test_an_attempt_that_failed_says_nothing_about_an_earlier_one_that_may_have_worked() -> None:
    attempts = patient()
    attempts.pause_after(UNREACHABLE)
    assert attempts.final_error(REFUSED) is REFUSED
    attempts.pause_after(LOST)
    attempts.pause_after(REFUSED)
    assert attempts.final_error(REFUSED) is LOST


def test_who_is_over_its_quota_waits_as_long_as_it_is_told() -> None:
    over = error_from_response(429, error_body(QuotaExceededError("the quota of requests is used up", 7.5)))
    assert isinstance(over, QuotaExceededError)
    assert patient().pause_after(over) == 7.5
    assert Attempts(ConnectionConfig(), retry_seconds=5.0).pause_after(over) is None
