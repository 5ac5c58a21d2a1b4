"""The keys of an OIDC issuer are downloaded over TLS, within bounds, and its tokens log in to a real server."""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaError, Producer

import tailrace.oidc_keys
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.security.signing_keys import MAX_DOCUMENT_BYTES
from tailrace.oidc_keys import DownloadedKeys, downloaded_keys
from tests.integration.security.secured import ADMIN, secured_server
from tests.support.eventually import eventually
from tests.support.oidc import AUDIENCE, ISSUER, SigningKeyPair, document
from tests.support.tls import make_certificate

KEY = SigningKeyPair("ec", "ES256")
SECONDS = 30


class Issuer:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.content = document(KEY)
        self.pause_seconds = 0.0
        """Between the bytes of the answer, if it is not 0."""
        self.reads = 0


@contextmanager
def issuer_at(certificate: Path) -> Iterator[Issuer]:
    answers = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.reads += 1
            self.send_response(answers.status)
            for header, value in answers.headers.items():
                self.send_header(header, value)
            self.end_headers()
            pieces = [answers.content] if not answers.pause_seconds else [bytes((one,)) for one in answers.content]
            try:
                for piece in pieces:
                    self.wfile.write(piece)
                    time.sleep(answers.pause_seconds)
            except OSError:
                # The reader has had enough.
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that refuses the certificate is what a test is about."""

    server = Quiet(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    answers.url = f"https://127.0.0.1:{server.server_address[1]}/realm/secret-path/keys"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path)


@pytest.fixture
def issuer(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with issuer_at(certificate) as running:
        yield running


def test_keys_are_downloaded(issuer: Issuer) -> None:
    source = downloaded_keys(SecuritySettings(oidc_keys=issuer.url))
    assert source is not None
    assert source.name == "127.0.0.1"
    assert source.read() == document(KEY)
    assert downloaded_keys(SecuritySettings(oidc_keys="keys.json")) is None
    assert downloaded_keys(SecuritySettings()) is None


def test_a_server_with_a_certificate_that_nobody_knows_is_not_asked(certificate: Path) -> None:
    with issuer_at(certificate) as issuer:
        with pytest.raises(OSError, match="no answer") as failed:
            DownloadedKeys(issuer.url).read()
        assert issuer.reads == 0
        assert "secret-path" not in str(failed.value)


@pytest.mark.parametrize("status", [301, 302, 307, 401, 404, 500])
def test_other_answers_are_none_and_redirections_are_not_followed(issuer: Issuer, status: int) -> None:
    issuer.status = status
    issuer.headers = {"location": issuer.url}
    with pytest.raises(OSError, match=f"status {status}") as failed:
        DownloadedKeys(issuer.url).read()
    assert issuer.reads == 1
    assert "secret-path" not in str(failed.value)


def test_a_document_that_is_too_large_is_not_read_to_its_end(issuer: Issuer) -> None:
    issuer.content = b" " * (MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(ValueError, match=f"more than {MAX_DOCUMENT_BYTES} bytes"):
        DownloadedKeys(issuer.url).read()


def test_an_answer_that_drips_is_given_up(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailrace.oidc_keys, "_TOTAL_SECONDS", 0.3)
    issuer.content = b" " * 1000
    issuer.pause_seconds = 0.05
    began = time.monotonic()
    with pytest.raises(OSError, match="took longer"):
        DownloadedKeys(issuer.url).read()
    assert time.monotonic() - began < SECONDS


def test_tokens_of_an_issuer_log_in_to_a_real_server(issuer: Issuer, certificate: Path, tmp_path: Path) -> None:
    settings = "\n".join(
        (
            "[security]",
            'authentication = "required"',
            "plain_without_tls = true",
            f'oidc_issuer = "{ISSUER}"',
            f'oidc_audience = "{AUDIENCE}"',
            f'oidc_keys = "{issuer.url}"',
            'oidc_roles_claim = "roles"',
            "",
        )
    )
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "robot", "exp": time.time() + 600, "roles": ["writers"]}
    token = KEY.sign(claims)
    with secured_server(tmp_path / "data", settings) as server:
        server.shown.append(token)
        with server.client(ADMIN) as client:
            assert client.post("/api/topics", json={"name": "orders"}).is_success
        with server.client(token=token) as client:
            who = client.get("/api/whoami").json()
            assert (who["name"], who["roles"]) == ("robot", [])
        server.sql("CREATE ROLE writers")
        server.sql("GRANT PUBLISH ON TOPIC orders TO writers")
        assert _produced(server.process.kafka, token) is None
        expired = KEY.sign({**claims, "exp": time.time() - 3600})
        stranger = SigningKeyPair("ec", "ES256").sign(claims)
        for wrong in (expired, stranger):
            server.shown.append(wrong)
            with server.client(token=wrong) as client:
                assert client.get("/api/whoami").status_code == 401
            failed = _produced(server.process.kafka, wrong, seconds=3)
            assert failed is not None
        assert issuer.reads == 1

        def audited() -> bool:
            with server.client(ADMIN) as client:
                body = {"topic": "_audit", "start": "earliest", "limit": 1000}
                found = client.post("/api/topics/consume", json=body).text
            return "robot" in found and "OIDC token" in found

        eventually(audited, "the audit has the logins")
        assert httpx.get(f"{server.url}/health").status_code == 200


def _produced(address: str, token: str, seconds: float = SECONDS) -> KafkaError | None:
    """Send a record by librdkafka with the token, and return why it was not stored."""
    outcome: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 300),
            "message.timeout.ms": int(seconds * 1000),
            "log_level": 0,
            "error_cb": lambda _: None,
        }
    )
    producer.produce("orders", b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(seconds + 5)
    return outcome[0]
