"""`tailrace init`: what it makes, what a server with it lets in, and what it refuses to do."""

import os
import re
import shlex
import socket
import ssl
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess


def init(folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tailrace", "init", "--data", str(folder), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def initialised(folder: Path, *flags: str) -> str:
    """The password of the administrator."""
    ended = init(folder, *flags)
    assert ended.returncode == 0, ended.stderr
    found = re.search(r"shown only now:\n\n {4}(\S+)\n", ended.stdout)
    assert found is not None, ended.stdout
    return found[1]


def started(folder: Path) -> ServerProcess:
    return ServerProcess(folder, "--config", str(folder / "tailrace.toml"))


def trust(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "tls" / "ca.pem"))


def asked(server: ServerProcess, auth: tuple[str, str] | None) -> int:
    """What an administrator gets to see, by its status."""
    answer = httpx.post(
        f"{server.url}/api/sql",
        json={"sql": "SELECT 1 AS one"},
        auth=auth,
        verify=trust(server.folder),
        timeout=PATIENCE_SECONDS,
    )
    return answer.status_code


def kafka(server: ServerProcess, user: str, password: str, **settings: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.kafka,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(server.folder / "tls" / "ca.pem"),
        **settings,
    }


def topics(settings: dict[str, Any]) -> set[str]:
    return set(confluent_kafka.Producer(settings).list_topics(timeout=5).topics)


def test_a_server_with_it_lets_the_administrator_in_and_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    password = initialised(folder)
    with started(folder) as server:
        assert asked(server, ("root", password)) == 200
        assert asked(server, None) == 401
        assert asked(server, ("root", "wrong")) == 401
        assert asked(server, ("somebody", password)) == 401
        producer = confluent_kafka.Producer(kafka(server, "root", password))
        producer.produce("orders", b"1")
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert "orders" in topics(kafka(server, "root", password))
        with pytest.raises(confluent_kafka.KafkaException):
            topics(kafka(server, "root", "wrong"))
        assert password not in server.stderr
        assert server.terminate() == 0
        server.start()
        assert asked(server, ("root", password)) == 200


def test_the_commands_that_it_prints_work(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ended = init(folder)
    password = re.search(r"shown only now:\n\n {4}(\S+)\n", ended.stdout)[1]  # type: ignore[index]
    (login,) = re.findall(r"^ {4}tailrace (sql .*)$", ended.stdout, re.MULTILINE)
    (serve,) = re.findall(r"^ {4}tailrace (serve .*)$", ended.stdout, re.MULTILINE)
    assert serve == f"serve --config {folder / 'tailrace.toml'}"
    with started(folder) as server:
        words = [sys.executable, "-m", "tailrace", *shlex.split(login.replace("https://127.0.0.1:8080", server.url))]
        found = subprocess.run(
            [*words, "-c", "SELECT 1 + 1 AS two", "--format", "csv"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env={**os.environ, "TAILRACE_PASSWORD": password},
            check=False,
        )
        assert found.returncode == 0, found.stderr
        assert "2" in found.stdout.splitlines()


def test_secrets_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    password = initialised(folder)
    for file in ("tailrace.toml", "tls/ca-key.pem", "tls/server-key.pem"):
        assert stat.S_IMODE((folder / file).stat().st_mode) == 0o600, file
    for name in (folder, folder / "tls"):
        assert stat.S_IMODE(name.stat().st_mode) & 0o077 == 0
    assert password not in (folder / "tailrace.toml").read_text()
    found = [file for file in folder.rglob("*") if file.is_file() and password.encode() in file.read_bytes()]
    assert found == []


def test_a_client_certificate_is_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    initialised(folder)
    with started(folder) as server:
        # While the server runs.
        issued = init(folder, "--certificate", "root")
        assert issued.returncode == 0, issued.stderr
        key = folder / "tls" / "root-key.pem"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        context = trust(folder)
        context.load_cert_chain(folder / "tls" / "root.pem", key)
        answer = httpx.get(f"{server.url}/api/topics", verify=context, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200
        settings = {
            "bootstrap.servers": server.kafka,
            "security.protocol": "SSL",
            "ssl.ca.location": str(folder / "tls" / "ca.pem"),
            "ssl.certificate.location": str(folder / "tls" / "root.pem"),
            "ssl.key.location": str(key),
        }
        assert topics(settings) is not None


def test_names_of_the_machine_are_in_the_certificate_and_let_others_reach_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    initialised(folder, "--host", "events.example", "--host", "10.0.0.7", "--user", "chief")
    written = tomllib.loads((folder / "tailrace.toml").read_text())
    assert written["server"] == {
        "data": str(folder),
        "http": "0.0.0.0:8080",
        "kafka": "0.0.0.0:9092",
        "advertise": "events.example:9092",
        "allow_remote": True,
    }
    assert written["security"]["authentication"] == "required"
    with started(folder) as server:
        host, port = server.url.removeprefix("https://").split(":")
        plain = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        with plain, trust(folder).wrap_socket(plain, server_hostname="events.example") as secure:
            shown: Any = secure.getpeercert()
        names = {name for _, name in shown["subjectAltName"]}
        assert names >= {"events.example", "10.0.0.7", "localhost", "127.0.0.1"}


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ServerProcess(folder):
        ended = init(folder)
    assert ended.returncode == 1
    assert re.fullmatch(rf"tailrace: {folder} is in use by process \d+; stop it first.*\n", ended.stderr)
    assert not (folder / "tls").exists()
    assert not (folder / "tailrace.toml").exists()


def test_a_folder_with_records_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ServerProcess(folder) as server:
        httpx.post(f"{server.url}/api/topics", json={"name": "orders"}, timeout=PATIENCE_SECONDS).raise_for_status()
        assert server.terminate() == 0
    password = initialised(folder)
    with started(folder) as server:
        assert "orders" in topics(kafka(server, "root", password))


def test_a_second_time_is_refused_and_forced_gives_a_new_password(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = initialised(folder)
    again = init(folder)
    assert again.returncode == 1
    assert re.fullmatch(r"tailrace: .*tailrace\.toml is there already; .*--force.*\n", again.stderr)
    (folder / "tailrace.toml").unlink()
    without_file = init(folder)
    assert without_file.returncode == 1
    assert "has users already (root); log in as one of them, or pass --force" in without_file.stderr
    second = initialised(folder, "--force")
    with started(folder) as server:
        assert asked(server, ("root", first)) == 401
        assert asked(server, ("root", second)) == 200


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--user", "admin"), "a role 'admin' already exists"),
        (("--user", "SERVER"), "can't be the name of a user"),
        (("--host", "Grüße.example"), "is no name of a machine"),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(tmp_path: Path, flags: tuple[str, ...], complaint: str) -> None:
    folder = tmp_path / "data"
    ended = init(folder, *flags)
    assert ended.returncode == 1
    assert complaint in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (folder / "tailrace.toml").exists()


@pytest.mark.parametrize("name", ["../escape", "ca", ".hidden", "a\nb", "x" * 65, " "])
def test_bad_names_of_clients_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    initialised(folder)
    before = sorted(folder.rglob("*"))
    ended = init(folder, "--certificate", name)
    assert ended.returncode == 1
    assert "can't be the name" in ended.stderr
    assert sorted(folder.rglob("*")) == before


def test_a_certificate_needs_an_authority(tmp_path: Path) -> None:
    ended = init(tmp_path / "nowhere", "--certificate", "alice")
    assert ended.returncode == 1
    assert "has no certificate authority of `tailrace init`" in ended.stderr
    assert not (tmp_path / "nowhere").exists()
