"""Lines of the log: what they have, and that nobody can forge one."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.broker.security.principals import act_as, stop_acting
from tailrace.cli.log_format import LogFormat, configure_logging
from tailrace.model.security import Principal

ALICE = Principal("alice", "10.0.0.7")


@contextmanager
def written(log_format: LogFormat) -> Iterator[io.StringIO]:
    """What is logged, without what pytest listens to."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging(log_format, stream)
    try:
        yield stream
    finally:
        root.handlers = before
        root.setLevel(level)


def test_a_line_of_text_has_time_level_and_logger() -> None:
    with written("text") as stream:
        logging.getLogger("tailrace.kafka").warning("closing %s", "it")
    line = stream.getvalue()
    assert line.endswith("Z WARNING tailrace.kafka: closing it\n")


def test_a_line_says_whose_request_was_handled() -> None:
    token = act_as(ALICE)
    try:
        with written("json") as stream:
            logging.getLogger("tailrace").warning("what")
    finally:
        stop_acting(token)
    found = json.loads(stream.getvalue())
    assert (found["principal"], found["client"], found["message"], found["level"]) == ("alice", "10.0.0.7", "what", "WARNING")


def test_a_line_of_text_ends_with_who_it_was() -> None:
    token = act_as(ALICE)
    try:
        with written("text") as stream:
            logging.getLogger("tailrace").warning("what")
    finally:
        stop_acting(token)
    assert stream.getvalue().endswith("tailrace: what [alice, 10.0.0.7]\n")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_clients_send_begins_no_line(log_format: LogFormat) -> None:
    with written(log_format) as stream:
        logging.getLogger("tailrace").warning(
            "unknown client %s", "x\n2026-01-01T00:00:00.000Z ERROR forged\r\x1b[2J\u2028\ud800"
        )
    assert stream.getvalue().count("\n") == 1
    assert not {"\r", "\x1b"} & set(stream.getvalue())


def test_an_error_has_its_traceback() -> None:
    with written("json") as stream:
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("tailrace").exception("it failed")
    found = json.loads(stream.getvalue())
    assert found["exception"].startswith("Traceback")
    assert "ValueError: why" in found["exception"]


def test_what_is_no_warning_is_not_written() -> None:
    with written("text") as stream:
        logging.getLogger("tailrace").info("too much")
    assert stream.getvalue() == ""
