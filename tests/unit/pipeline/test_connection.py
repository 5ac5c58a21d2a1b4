"""Where the server is."""

import threading
import time

import pytest

from tailrace.api.server import Health
from tailrace.model.errors import ConfigurationError, ServerUnreachableError
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.errors import OptionError


@pytest.mark.parametrize(
    ("url", "full_url"),
    [
        ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
        ("db.example", "http://db.example:8080"),
        ("db.example:1234", "http://db.example:1234"),
        ("http://[::1]", "http://[::1]:8080"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("https://tailrace.example", "https://tailrace.example"),
        ("http://gate.example/streams/", "http://gate.example:8080/streams/"),
        ("https://gate.example:8443/streams/", "https://gate.example:8443/streams/"),
    ],
)
def test_an_address_may_leave_out_the_scheme_and_the_port(url: str, full_url: str) -> None:
    assert ServerAddress(url).checked().full_url == full_url


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "//", "http://h:x", "spark://host:7077"])
def test_what_is_no_address_is_rejected_with_one_that_is(url: str) -> None:
    with pytest.raises(OptionError, match=r"is not an address such as http://127\.0\.0\.1:8080"):
        ServerAddress(url).checked()


def test_a_file_that_holds_no_certificates_is_named() -> None:
    server = ServerAddress("https://127.0.0.1", "/is/not/there")
    with (
        ServerConnection(server) as connection,
        pytest.raises(ConfigurationError, match=r"ca_file is '/is/not/there', which can't be read"),
    ):
        connection.get("/health", Health)


def test_a_server_that_does_not_answer_is_reported_with_what_was_asked() -> None:
    with (
        ServerConnection(ServerAddress("http://127.0.0.1:9"), 0.1) as connection,
        pytest.raises(
            ServerUnreachableError, match=r"http://127\.0\.0\.1:9 did not take GET /health for 0\.1 s: no server answers"
        ),
    ):
        connection.get("/health", Health)


def test_a_process_that_is_about_to_stop_does_not_wait_for_a_server() -> None:
    stopping = threading.Event()
    stopping.set()
    began = time.monotonic()
    with (
        ServerConnection(ServerAddress("http://127.0.0.1:9"), 60.0, stopping) as connection,
        pytest.raises(ServerUnreachableError),
    ):
        connection.get("/health", Health)
    assert time.monotonic() - began < 10
