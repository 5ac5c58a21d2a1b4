"""Responses and broken connections become errors of the tree."""

import json
import ssl

import httpx
import pytest

import tailrace.client as client
from tailrace.client.errors import error_from_exception, error_from_response
from tailrace.client.http11 import InvalidResponseError, NotConnectedError
from tailrace.model.errors import MemberIdRequiredError, OffsetOutOfRangeError, StorageFailedError, TailraceError


def problem(kind: str, **members: object) -> bytes:
    return json.dumps({"type": f"urn:tailrace:error:{kind}", "detail": "so it is", **members}).encode()


def test_a_problem_becomes_the_error_that_the_server_raised_with_all_that_it_carries() -> None:
    error = error_from_response(416, problem("offset-out-of-range", start=3, end=9, retriable=False, outcome="failed"))
    assert isinstance(error, OffsetOutOfRangeError)
    assert (str(error), error.start, error.end, error.outcome) == ("so it is", 3, 9, "failed")
    required = error_from_response(409, problem("member-id-required", member_id="m1"))
    assert isinstance(required, MemberIdRequiredError)
    assert required.member_id == "m1"


def test_an_unknown_outcome_stays_unknown() -> None:
    error = error_from_response(503, problem("storage-failed", retriable=True, outcome="unknown"))
    assert isinstance(error, StorageFailedError)
    assert (error.retriable, error.outcome) == (True, "unknown")


@pytest.mark.parametrize(
    ("status", "retriable", "outcome"), [(404, False, "failed"), (500, False, "unknown"), (502, True, "unknown")]
)
def test_an_answer_that_is_no_problem_says_what_its_status_says(status: int, retriable: bool, outcome: str) -> None:
    error = error_from_response(status, b"<html>gateway</html>")
    assert (error.retriable, error.outcome) == (retriable, outcome)
    assert "<html>gateway</html>" in str(error)


def test_an_error_that_this_version_does_not_know_is_still_of_the_tree() -> None:
    error = error_from_response(409, problem("from-the-future", retriable=True, outcome="failed"))
    assert type(error) is TailraceError
    assert (str(error), error.retriable) == ("so it is", True)


@pytest.mark.parametrize(
    ("cause", "expected", "outcome"),
    [
        (NotConnectedError("refused"), client.ServerUnreachableError, "failed"),
        (InvalidResponseError("cut"), client.ConnectionLostError, "unknown"),
        (TimeoutError("slow"), client.TimeoutError, "unknown"),
        (httpx.ConnectError("refused"), client.ServerUnreachableError, "failed"),
        (httpx.ConnectTimeout("slow"), client.ServerUnreachableError, "failed"),
        (httpx.ReadTimeout("slow"), client.TimeoutError, "unknown"),
        (httpx.WriteTimeout("slow"), client.TimeoutError, "unknown"),
        (httpx.ReadError("reset"), client.ConnectionLostError, "unknown"),
        (httpx.RemoteProtocolError("cut"), client.ConnectionLostError, "unknown"),
    ],
)
def test_what_was_not_sent_is_reported_apart_from_what_may_have_worked(
    cause: Exception, expected: type[TailraceError], outcome: str
) -> None:
    error = error_from_exception("http://server", cause)
    assert type(error) is expected
    assert (error.outcome, error.retriable) == (outcome, True)


def test_time_outs_are_time_outs_for_everybody() -> None:
    assert issubclass(client.TimeoutError, TimeoutError)
    assert str(client.TimeoutError("too late")) == "too late"


def test_every_name_that_the_client_offers_is_there() -> None:
    assert [name for name in client.__all__ if not hasattr(client, name)] == []


@pytest.mark.parametrize(
    "reason", ["TLSV1_ALERT_UNKNOWN_CA", "TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"]
)
def test_a_certificate_that_the_server_refuses_is_told_apart_from_a_broken_connection(reason: str) -> None:
    alert = ssl.SSLError(1, "alert")
    alert.reason = reason
    read = httpx.ReadError("alert")
    read.__cause__ = alert
    error = error_from_exception("https://a", read)
    assert isinstance(error, client.TlsError)
    assert "certificate_file" in str(error)
    assert not error.retriable
