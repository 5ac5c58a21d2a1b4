"""TLS on both listeners, with real certificates and real clients."""

import asyncio
import re
import select
import shutil
import socket
import ssl
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import httpx
import psutil
import pytest
import websockets

from tailrace.cli.init import make_administrator
from tailrace.wire.messages.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from tests.integration.topics import metric
from tests.support.certificates import Authority, Issued
from tests.support.eventually import eventually
from tests.support.kafka import frame, sized
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SLOW_SOCKETS = 100
DEAF_CLIENTS = 20
MIB = 1 << 20
PASSWORD = "correct horse battery staple"  # noqa: S105


class TlsServer(NamedTuple):
    server: ServerProcess
    authority: Authority
    issued: Issued

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.file))

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=self.trust, timeout=PATIENCE_SECONDS, **options)

    def connect(self, address: str | None = None) -> socket.socket:
        host, port = (address or self.server.kafka).rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)

    @property
    def http_address(self) -> str:
        return self.url.removeprefix("https://")

    def kafka(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.server.kafka,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.file),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }


def section(issued: Issued, more: str = "") -> str:
    return f'[security]\ntls_certificate = "{issued.certificate}"\ntls_key = "{issued.key}"\n{more}\n'


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsServer]:
    """A server without authentication."""
    authority = Authority(tmp_path)
    issued = authority.server()
    with ServerProcess(tmp_path / "data", toml=section(issued)) as server:
        yield TlsServer(server, authority, issued)


@pytest.fixture
def mutual(tmp_path: Path) -> Iterator[TlsServer]:
    """A server where clients have to show a certificate, and `root` may do everything."""
    authority = Authority(tmp_path)
    issued = authority.server()
    make_administrator(tmp_path / "data", "root", PASSWORD, force=False)
    more = f'authentication = "required"\nclient_certificates = "required"\nclient_ca = "{authority.file}"\n'
    with ServerProcess(tmp_path / "data", toml=section(issued, more)) as server:
        yield TlsServer(server, authority, issued)


def produce(settings: dict[str, Any], topic: str, *values: bytes) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer({**settings, "message.max.bytes": 8_000_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failures == []


def consume(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest", "fetch.message.max.bytes": 8_000_000}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()
    return found


def complaint_of(settings: dict[str, Any]) -> str:
    """What librdkafka says about a server that it can't connect to."""
    said: list[str] = []
    admin = confluent_kafka.Producer({**settings, "error_cb": lambda error: said.append(str(error))})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    return " ".join(said)


def test_librdkafka_produces_and_consumes_small_and_large_records(tls: TlsServer) -> None:
    values = [b"%d" % number for number in range(1000)] + [bytes([number]) * 700_000 for number in range(12)]
    produce(tls.kafka(), "orders", *values)
    assert sorted(consume(tls.kafka(), "orders", len(values))) == sorted(values)
    assert "TLS handshake" not in tls.server.stderr


def test_http_and_websockets_speak_tls(tls: TlsServer) -> None:
    with tls.client() as client:
        client.post("/api/topics", json={"name": "orders"}).raise_for_status()
        body = {"messages": [{"topic": "orders", "value": "x" * 500_000}]}
        client.post("/api/topics/publish", json=body).raise_for_status()
        page = client.post("/api/topics/consume", json={"topic": "orders", "start": 0}).json()
    assert page["messages"][0]["value"] == "x" * 500_000

    async def subscribe() -> str | bytes:
        address = f"wss://{tls.http_address}/api/subscribe?pattern=orders&cursor=beginning"
        async with websockets.connect(address, ssl=tls.trust, max_size=2**21) as connection:
            return await asyncio.wait_for(connection.recv(), PATIENCE_SECONDS)

    assert len(asyncio.run(subscribe())) > 500_000


def test_the_ready_line_has_the_address_with_https(tls: TlsServer) -> None:
    assert "is ready at https://127.0.0.1:" in tls.server.ready_line


def test_a_client_that_does_not_know_the_authority_does_not_connect(tls: TlsServer, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(tls.url, verify=ssl.create_default_context(cafile=str(other.file)))
    complaint = complaint_of({**tls.kafka(), "ssl.ca.location": str(other.file)})
    assert "certificate" in complaint.lower()
    eventually(lambda: "the TLS handshake of 127.0.0.1 failed" in tls.server.stderr, "it is logged", PATIENCE_SECONDS)
    with tls.client() as client:
        assert metric_of(client, 'tailrace_kafka_connections_closed_total{reason="tls_handshake"}') >= 1


def metric_of(client: httpx.Client, sample: str) -> float:
    page = client.get("/metrics").text
    found = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_certificate_for_another_name_is_not_taken(tls: TlsServer, tmp_path: Path) -> None:
    issued = tls.authority.server("elsewhere", ["elsewhere.example"])
    with (
        ServerProcess(tmp_path / "elsewhere", toml=section(issued)) as server,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        httpx.get(server.url, verify=tls.trust)


def test_an_expired_certificate_is_said_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with ServerProcess(tmp_path / "data", toml=section(authority.server(days=-1))) as server:
        assert "has expired, and clients reject it" in server.stderr
        with pytest.raises(httpx.ConnectError, match="expired"):
            httpx.get(server.url, verify=ssl.create_default_context(cafile=str(authority.file)))


def test_files_that_can_not_be_used_keep_it_from_starting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    issued.key.write_text("nothing")
    server = ServerProcess(tmp_path / "data", toml=section(issued))
    server.launch()
    assert server.wait() == 1
    assert re.fullmatch(r"tailrace: .*have no certificate with its private key as PEM in them.*\n", server.stderr)
    assert not (tmp_path / "data").exists()


def offered(tls: TlsServer, address: str, version: ssl.TLSVersion) -> str | None:
    """The version that the server speaks with a client that offers this one and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(str(tls.authority.file))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    with tls.connect(address) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        return secure.version()


def test_versions_before_1_2_are_refused(tls: TlsServer) -> None:
    for address in (tls.server.kafka, tls.http_address):
        assert offered(tls, address, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        assert offered(tls, address, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                offered(tls, address, version)
    eventually(lambda: "it offers no TLS 1.2 or 1.3" in tls.server.stderr, "it is logged", PATIENCE_SECONDS)


def test_plain_text_at_the_http_listener_is_answered_with_what_to_do(tls: TlsServer) -> None:
    answer = httpx.post(f"http://{tls.http_address}/api/sql", json={"sql": "SELECT 1"}, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert "this listener speaks TLS; use https://" in answer.json()["detail"]
    expected = "127.0.0.1 speaks plain text to this listener, which speaks TLS; use https://"
    eventually(lambda: expected in tls.server.stderr, "it is logged", PATIENCE_SECONDS)


def test_a_large_body_in_plain_text_does_not_take_the_answer_away(tls: TlsServer) -> None:
    answer = httpx.post(f"http://{tls.http_address}/api/sql", content=b"x" * 200_000, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 400


def test_plain_text_at_the_kafka_listener_is_closed_with_what_to_set(tls: TlsServer) -> None:
    assert complaint_of({"bootstrap.servers": tls.server.kafka})
    expected = "127.0.0.1 speaks plain text to this listener, which speaks TLS; set security.protocol to SSL or SASL_SSL"
    eventually(lambda: expected in tls.server.stderr, "it is logged", PATIENCE_SECONDS)


def test_tls_at_a_plain_server_is_closed_with_what_to_set(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url.replace("http:", "https:"), verify=ssl.create_default_context())
        expected = "127.0.0.1 sent a TLS handshake to the HTTP listener, which is plain text; use http://"
        eventually(lambda: expected in server.stderr, "it is logged", PATIENCE_SECONDS)
        assert complaint_of({"bootstrap.servers": server.kafka, "security.protocol": "ssl"})
        kafka = "sent a TLS handshake to the Kafka listener, which is plain text; set security.protocol"
        eventually(lambda: kafka in server.stderr, "it is logged", PATIENCE_SECONDS)
        assert metric(server.url, 'tailrace_kafka_connections_closed_total{reason="wrong_protocol"}') >= 1


def test_who_only_looks_whether_somebody_listens_is_not_logged(tls: TlsServer) -> None:
    for address in (tls.server.kafka, tls.http_address):
        tls.connect(address).close()
    with tls.client() as client:
        assert client.get("/health").status_code == 200
    assert tls.server.stderr == ""


def is_closed(held: socket.socket) -> bool:
    try:
        return held.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_hundred_slow_handshakes_hinder_nobody_and_are_ended(tls: TlsServer) -> None:
    begun = (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01")
    with ExitStack() as opened:
        held = []
        for number in range(SLOW_SOCKETS):
            slow = opened.enter_context(tls.connect(tls.server.kafka if number % 2 else tls.http_address))
            slow.sendall(begun[number % len(begun)])
            held.append(slow)
        with tls.client() as client:
            assert client.get("/health").status_code == 200
        produce(tls.kafka(), "orders", b"1")
        readable, _, _ = select.select(held, [], [], 0)
        assert readable == [], "they ended before the others had their answers"
        assert all(map(is_closed, held))


def test_handshakes_count_as_connections_of_their_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    limits = "[limits]\nconnections_per_address = 5\nnew_connections_per_second = 1000\n"
    with ServerProcess(tmp_path / "data", toml=section(authority.server()) + limits) as server, ExitStack() as opened:
        tls = TlsServer(server, authority, authority.server("unused"))
        held = [opened.enter_context(tls.connect()) for _ in range(5)]
        with tls.connect() as sixth:
            assert is_closed(sixth)
        rejected = "127.0.0.1 was rejected: limit connections_per_address reached (5)"
        eventually(lambda: rejected in server.stderr, "it is logged", PATIENCE_SECONDS)
        for one in held:
            one.close()
        eventually(lambda: has_room(tls), "there is room", PATIENCE_SECONDS)


def has_room(tls: TlsServer) -> bool:
    try:
        return offered(tls, tls.server.kafka, ssl.TLSVersion.TLSv1_3) is not None
    except (ssl.SSLError, ConnectionError):
        return False


def test_garbage_after_the_first_byte_costs_only_its_connection(tls: TlsServer) -> None:
    for address in (tls.server.kafka, tls.http_address):
        with tls.connect(address) as client:
            client.sendall(b"\x16" + bytes(range(256)) * 20)
            assert is_closed(client)
    with tls.client() as client:
        assert client.get("/health").status_code == 200
    assert "Traceback" not in tls.server.stderr


def test_a_replaced_certificate_is_used_without_a_restart_and_without_an_error(tls: TlsServer) -> None:
    renewed = tls.authority.server("renewed")
    failures: list[object] = []
    delivered = [0]
    stopping = threading.Event()

    def keep_producing() -> None:
        def on_delivery(error: object, _: object) -> None:
            delivered[0] += 1
            if error:
                failures.append(error)

        producer = confluent_kafka.Producer({**tls.kafka(), "linger.ms": 5})
        while not stopping.is_set():
            producer.produce("orders", b"x" * 100, on_delivery=on_delivery)
            producer.poll(0.001)
        producer.flush(PATIENCE_SECONDS)

    def keep_connecting() -> None:
        while not stopping.is_set():
            try:
                with tls.client() as client:
                    client.get("/health").raise_for_status()
            except httpx.HTTPError as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for work in (keep_producing, keep_connecting)]
    for thread in threads:
        thread.start()
    try:
        before = serial_of(tls)
        eventually(lambda: delivered[0] > 100, "records are written", PATIENCE_SECONDS)
        # The certificate first, so that for a moment its key is another one's.
        shutil.copy(renewed.certificate, tls.issued.certificate)
        time.sleep(2.5)
        shutil.copy(renewed.key, tls.issued.key)
        eventually(lambda: serial_of(tls) != before, "the new one is used", PATIENCE_SECONDS)
        written = delivered[0]
        eventually(lambda: delivered[0] > written, "records go on", PATIENCE_SECONDS)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert "new connections use the TLS certificate that" in tls.server.stderr


def serial_of(tls: TlsServer) -> str:
    with tls.connect() as plain, tls.trust.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        return str((secure.getpeercert() or {})["serialNumber"])


def certificate_of(issued: Issued) -> dict[str, str]:
    return {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}


def context_of(tls: TlsServer, issued: Issued | None) -> ssl.SSLContext:
    context = tls.trust
    if issued is not None:
        context.load_cert_chain(issued.certificate, issued.key)
    return context


def test_a_client_certificate_is_its_user_on_both_listeners(mutual: TlsServer) -> None:
    root = mutual.authority.client("root")
    settings = {**mutual.kafka(), **certificate_of(root)}
    produce(settings, "orders", b"1", b"2")
    assert consume(settings, "orders", 2) == [b"1", b"2"]
    with httpx.Client(base_url=mutual.url, verify=context_of(mutual, root), timeout=PATIENCE_SECONDS) as client:
        assert client.get("/api/topics").status_code == 200


def test_the_user_of_a_certificate_may_do_what_was_granted_and_no_more(mutual: TlsServer) -> None:
    root, other = mutual.authority.client("root"), mutual.authority.client("other", file="other")
    produce({**mutual.kafka(), **certificate_of(root)}, "orders", b"1")
    with httpx.Client(base_url=mutual.url, verify=context_of(mutual, other), timeout=PATIENCE_SECONDS) as client:
        body = {"messages": [{"topic": "orders", "value": "2"}]}
        assert client.post("/api/topics/publish", json=body).status_code == 403


def bad_clients(mutual: TlsServer, tmp_path: Path) -> dict[str, Issued | None]:
    return {
        "none": None,
        "expired": mutual.authority.client("root", file="expired", days=-1),
        "of another authority": Authority(tmp_path, "other").client("root"),
        "of a server": mutual.authority.server("for-a-server", ["root"]),
    }


@pytest.mark.parametrize("which", ["none", "expired", "of another authority", "of a server"])
def test_a_client_without_a_good_certificate_gets_no_connection(mutual: TlsServer, tmp_path: Path, which: str) -> None:
    issued = bad_clients(mutual, tmp_path)[which]
    with pytest.raises(httpx.TransportError):
        # Over TLS 1.3 a client learns of it when it reads.
        httpx.get(f"{mutual.url}/health", verify=context_of(mutual, issued), timeout=PATIENCE_SECONDS)
    settings = {**mutual.kafka(), **({} if issued is None else certificate_of(issued))}
    with pytest.raises(confluent_kafka.KafkaException):
        confluent_kafka.Producer({**settings, "enable.ssl.certificate.verification": True}).list_topics(timeout=3)
    why = "it showed no certificate" if issued is None else "its certificate is not accepted"
    eventually(lambda: why in mutual.server.stderr, "it is logged", PATIENCE_SECONDS)


@pytest.mark.parametrize("more", ["", 'client_certificates = "required"', 'sasl_mechanisms = ["PLAIN"]'])
def test_processes_of_the_server_get_in_and_show_their_secret_to_nobody(tmp_path: Path, more: str) -> None:
    """A shadow: over HTTP, and over Kafka's protocol, with a certificate that is for another name."""
    authority = Authority(tmp_path)
    issued = authority.server(names=["events.example"])
    make_administrator(tmp_path / "data", "root", PASSWORD, force=False)
    client_ca = f'client_ca = "{authority.file}"' if "client" in more else ""
    toml = section(issued, f'authentication = "required"\n{more}\n{client_ca}')
    with ServerProcess(tmp_path / "other") as other, ServerProcess(tmp_path / "data", toml=toml) as server:
        sql = as_root(server, authority.client("root"))
        sql("CREATE TOPIC shop.orders")
        sql(f"CREATE SHADOW prod TO KAFKA '{other.kafka}' WITH (topics = 'shop.>')")
        eventually(
            lambda: sql("SELECT state FROM system.shadows WHERE name = 'prod'") == [["live"]], "it is copied", PATIENCE_SECONDS
        )
        (child,) = [one for one in psutil.Process(server.pid).children() if "shadow" in one.cmdline()]
        seen = " ".join([*child.cmdline(), *child.environ().values(), *psutil.Process(server.pid).environ().values()])
        assert "tlr_server_" not in seen
        assert "tlr_server_" not in server.stderr


def as_root(server: ServerProcess, issued: Issued) -> Callable[[str], list[list[Any]]]:
    context = ssl.create_default_context()
    # The certificate is for another name.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(issued.certificate, issued.key)

    def ask(text: str) -> list[list[Any]]:
        answer = httpx.post(
            f"{server.url}/api/sql",
            json={"sql": text},
            auth=("root", PASSWORD),
            verify=context,
            timeout=PATIENCE_SECONDS,
        )
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json().get("rows", [])
        return rows

    return ask


def test_the_secret_of_another_run_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    toml = section(authority.server(), 'authentication = "required"')
    with ServerProcess(tmp_path / "data", toml=toml) as server:
        for token in ("tlr_server_" + "A" * 43, "tlr_server_", "tlr_"):
            headers = {"authorization": f"Bearer {token}"}
            answer = httpx.get(f"{server.url}/api/topics", headers=headers, verify=False)  # noqa: S501
            assert answer.status_code == 401


def test_half_a_request_over_tls_ends_by_the_same_limit(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    limits = "[limits]\nrequest_seconds = 2\n"
    with ServerProcess(tmp_path / "data", toml=section(authority.server()) + limits) as server:
        tls = TlsServer(server, authority, authority.server("unused"))
        with tls.connect() as plain, tls.trust.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            secure.sendall(struct.pack(">i", 100) + b"\0" * 10)
            with suppress(ConnectionError, ssl.SSLError):
                assert secure.recv(1) == b""
        eventually(lambda: "did not finish a request within 2 s" in server.stderr, "it is logged", PATIENCE_SECONDS)


def test_answers_that_clients_do_not_read_count_as_unsent(tmp_path: Path) -> None:
    """As they do without TLS: such clients are disconnected, and an encrypted copy of each answer fills no memory."""
    authority = Authority(tmp_path)
    limits = "[limits]\nunsent_seconds = 2\n"
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=50 * MIB,
        topics=(FetchTopic(topic="orders", partitions=(wanted,)),),
    )
    with ServerProcess(tmp_path / "data", toml=section(authority.server()) + limits) as server, ExitStack() as opened:
        tls = TlsServer(server, authority, authority.server("unused"))
        produce(tls.kafka(), "orders", *(bytes([number]) * 900_000 for number in range(20)))
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        for _ in range(DEAF_CLIENTS):
            deaf = opened.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            host, port = server.kafka.split(":")
            deaf.connect((host, int(port)))
            secure = opened.enter_context(tls.trust.wrap_socket(deaf, server_hostname="127.0.0.1"))
            secure.sendall(sized(frame(FETCH_API, 4, request)))
        with tls.client() as client:
            closed = 'tailrace_kafka_connections_closed_total{reason="slow_reader"}'
            eventually(lambda: metric_of(client, closed) == DEAF_CLIENTS, "they are disconnected", PATIENCE_SECONDS)
            eventually(lambda: metric_of(client, "tailrace_answers_held_bytes") == 0, "all is given back", PATIENCE_SECONDS)
        assert process.memory_info().rss - before < DEAF_CLIENTS * 4 * MIB
