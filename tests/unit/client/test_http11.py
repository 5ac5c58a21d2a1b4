"""Requests are encoded, and responses are parsed however their bytes arrive."""

import subprocess
import sys
from typing import Any

import pytest

from tailrace.client.http11 import (
    DirectAddress,
    HttpRequest,
    HttpResponse,
    InvalidResponseError,
    ResponseReader,
    checked_url,
    direct_address,
    encode_request,
)
from tailrace.model.errors import ConfigurationError

HOME = DirectAddress("127.0.0.1", 8080, b"127.0.0.1:8080", b"")
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nTailrace-Request: 7\r\n\r\n{}"


def test_a_request_is_one_piece_with_its_name_and_its_length() -> None:
    head, _, body = encode_request(HttpRequest("POST", "/api/x", "7", b'{"a":1}'), HOME).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /api/x HTTP/1.1"
    assert {b"host: 127.0.0.1:8080", b"tailrace-request: 7", b"content-length: 7"} <= set(lines)
    assert body == b'{"a":1}'


def test_a_request_without_a_body_names_no_type_of_it() -> None:
    encoded = encode_request(HttpRequest("GET", "/health", "1", None), HOME._replace(path_prefix=b"/behind"))
    assert encoded.startswith(b"GET /behind/health HTTP/1.1\r\n")
    assert encoded.endswith(b"\r\n\r\n")
    assert b"content" not in encoded


@pytest.mark.parametrize("size", [1, 3, len(ANSWER)])
def test_an_answer_is_the_same_however_it_is_cut(size: int) -> None:
    reader = ResponseReader()
    found = [reader.feed(ANSWER[at : at + size]) for at in range(0, len(ANSWER), size)]
    assert found[-1] == HttpResponse(200, b"{}", "7", False)
    assert not any(found[:-1])


def test_one_connection_gives_one_answer_after_another() -> None:
    reader = ResponseReader()
    chunked = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
    assert [reader.feed(ANSWER), reader.feed(chunked), reader.feed(ANSWER)] == [
        HttpResponse(200, b"{}", "7", False),
        HttpResponse(404, b"no", None, False),
        HttpResponse(200, b"{}", "7", False),
    ]
    assert not reader.has_surplus


def test_what_only_announces_an_answer_is_none() -> None:
    assert ResponseReader().feed(b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER) == HttpResponse(200, b"{}", "7", False)


def test_the_first_of_two_answers_counts_and_the_other_is_noticed() -> None:
    reader = ResponseReader()
    answer = reader.feed(ANSWER + ANSWER.replace(b"200", b"500"))
    assert (answer, reader.has_surplus) == (HttpResponse(200, b"{}", "7", False), True)


def test_an_answer_that_closes_its_connection_is_its_last() -> None:
    answer = ResponseReader().feed(b"HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert answer == HttpResponse(503, b"", None, True)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>") is None
    assert reader.feed_end() == HttpResponse(502, b"<html>", None, True)


@pytest.mark.parametrize("came", [b"", ANSWER[:10], ANSWER[:-1]])
def test_an_answer_that_was_cut_off_is_none(came: bytes) -> None:
    reader = ResponseReader()
    assert reader.feed(came) is None
    with pytest.raises(InvalidResponseError, match="before its response was complete"):
        reader.feed_end()


@pytest.mark.parametrize(
    ("came", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "invalid HTTP response"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: %b\r\n" % (b"y" * 1000) * 70, "larger than 65536 bytes"),
    ],
)
def test_what_is_no_answer_is_rejected(came: bytes, reason: str) -> None:
    with pytest.raises(InvalidResponseError, match=reason):
        ResponseReader().feed(came)


def test_a_plain_address_is_gone_to_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert direct_address(checked_url("http://127.0.0.1:8080/")) == HOME
    assert direct_address("http://[::1]/behind") == DirectAddress("::1", 80, b"[::1]", b"/behind")


@pytest.mark.parametrize("url", ["https://127.0.0.1:8080", "http://me:secret@127.0.0.1:8080"])
def test_tls_and_passwords_take_more_than_a_connection(url: str) -> None:
    assert direct_address(url) is None


def test_a_proxy_of_the_environment_is_used_unless_the_host_is_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert direct_address("http://server.example") is None
    assert direct_address("http://127.0.0.1:8080") == HOME


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_a_proxy_is_not_asked_for_addresses_of_this_machine(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    assert direct_address(f"http://{host}:8080") is not None


@pytest.mark.parametrize(
    "url", ["", "server", "ftp://server", "http://", "http://[::1", "http://server:70000", "http://a b/", 5]
)
def test_what_is_no_address_of_a_server_is_rejected(url: Any) -> None:
    with pytest.raises(ConfigurationError, match="allowed is an address such as"):
        checked_url(url)


def test_the_transport_loads_without_the_libraries_that_plain_addresses_do_not_need() -> None:
    code = "import sys, tailrace.client._sync.transport as t; t.Transport('http://127.0.0.1:1'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "websockets", "asyncio", "urllib.request"} & set(loaded)
