"""What a server gives to processes that it starts: how it comes to them, and what they trust with it."""

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model.parent_process import ENDS_WITH_PARENT
from tailrace.model.server_credentials import (
    CREDENTIALS_ON_STDIN,
    ServerCredentials,
    credentials_of_environment,
    new_token,
    pinned_context,
)
from tests.support.certificates import Authority, Issued

CREDENTIALS = ServerCredentials("tlr_server_x", "server.pem", "PLAIN", "client.pem")
CHILD = """
import os, pathlib
from tailrace.model.parent_process import end_with_parent_if_asked
from tailrace.model.server_credentials import credentials_of_environment
end_with_parent_if_asked()
found = credentials_of_environment()
at_start = pathlib.Path("/proc/self/environ").read_bytes()
print(found.token, found.certificate, found.mechanism, found.client_certificate, b"tlr_server" in at_start, flush=True)
"""


def said_by_child(line: bytes, **environment: str) -> str:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ENDS_WITH_PARENT, **environment},
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(line)
        child.stdin.flush()
        return child.stdout.readline().decode().strip()


def test_a_child_has_them_in_its_environment_where_nobody_sees_them() -> None:
    assert said_by_child(CREDENTIALS.line(), **CREDENTIALS_ON_STDIN) == "tlr_server_x server.pem PLAIN client.pem False"


def test_a_child_that_is_not_told_so_reads_nothing() -> None:
    assert said_by_child(b"") == "None None None None False"


def test_those_of_the_server_count_before_those_that_the_child_inherits() -> None:
    said = said_by_child(CREDENTIALS.line(), TAILRACE_TOKEN="other", TAILRACE_KEY_FILE="other.pem", **CREDENTIALS_ON_STDIN)  # noqa: S106
    assert said.startswith("tlr_server_x ")


def test_they_are_not_shown() -> None:
    assert "tlr_server_x" not in repr(CREDENTIALS)
    assert "tlr_server_x" not in f"{[CREDENTIALS]}"


def test_what_is_not_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAILRACE_TOKEN", "TAILRACE_SERVER_CERTIFICATE", "TAILRACE_SERVER_MECHANISM", "TAILRACE_CERTIFICATE_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert credentials_of_environment() == ServerCredentials()


def test_no_two_tokens_are_the_same() -> None:
    assert len({new_token() for _ in range(100)}) == 100


def shakes_hands(client: ssl.SSLContext, issued: Issued) -> bool:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(issued.certificate, issued.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1" if client.check_hostname else None)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        try:
            asking.do_handshake()
        except ssl.SSLWantReadError:
            try:
                answering.do_handshake()
            except ssl.SSLWantReadError:
                continue
        except ssl.SSLCertVerificationError:
            return False
        else:
            return True
    raise AssertionError("the handshake does not end")


def test_a_child_trusts_the_certificate_of_the_server_and_no_other_of_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, other = authority.server("one", ["elsewhere.example"]), authority.server("other", ["127.0.0.1"])
    chain = tmp_path / "chain.pem"
    chain.write_text(issued.certificate.read_text() + authority.file.read_text())
    assert shakes_hands(pinned_context(str(issued.certificate)), issued)
    assert shakes_hands(pinned_context(str(chain)), issued)
    assert not shakes_hands(pinned_context(str(chain)), other)
    assert not shakes_hands(pinned_context(str(issued.certificate)), other)
