"""`tailrace serve` as whoever runs it sees it: its first line, its last line, its exit code."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.topics import consume, create, metric, publish
from tests.support.eventually import eventually
from tests.support.faults import failing_call, why_no_shim
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

STOP_SECONDS = 10.0
START_SECONDS = 1.5


def refused(*flags: str) -> tuple[int, str]:
    """Exit code and stderr of a server that does not start."""
    kafka = () if "--kafka" in flags else ("--kafka", "127.0.0.1:0")
    command = [sys.executable, "-m", "tailrace", "serve", *flags, *kafka]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def wait_for_metric(url: str, name: str, value: float) -> None:
    eventually(lambda: metric(url, name) == value, f"{name} is {value}", PATIENCE_SECONDS)


def health(server: ServerProcess) -> int:
    return httpx.get(f"{server.url}/health", timeout=PATIENCE_SECONDS).status_code


def test_one_line_says_address_folder_durability_and_time(server: ServerProcess) -> None:
    expected = (
        rf"Tailrace \S+ is ready at {server.url}, Kafka at {server.kafka}, data in {server.folder}, durability fsync,"
        r" opened in \d+\.\d\d s\n"
    )
    assert re.fullmatch(expected, server.ready_line)
    assert server.terminate() == 0
    assert server.stderr == ""


def test_health_tells_version_durability_uptime_and_end_of_the_log(server: ServerProcess, client: httpx.Client) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", 1, 2, 3)
    answer = client.get("/health")
    assert answer.status_code == 200
    health = answer.json()
    assert health.pop("uptime_seconds") > 0
    assert re.fullmatch(r"\d+\.\d+\.\d+", health.pop("version"))
    assert health == {"status": "ok", "durability": "fsync", "end_cursor": 3, "kafka": server.kafka}


def test_nothing_listens_beyond_loopback(server: ServerProcess) -> None:
    sockets = psutil.Process(server.pid).net_connections()
    assert [held.laddr.ip for held in sockets if held.status == psutil.CONN_LISTEN] == ["127.0.0.1"] * 2


def test_a_server_keeps_no_library_that_only_its_command_line_needs(server: ServerProcess) -> None:
    process = psutil.Process(server.pid)
    libraries = [mapped.path for mapped in process.memory_maps()]
    assert any("rocksdict" in path for path in libraries)
    assert not any("pydantic" in path for path in libraries)
    assert process.cmdline() == server.command


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_it_in_time_and_everything_is_there_again(server: ServerProcess, number: signal.Signals) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", *range(100))
    began = time.monotonic()
    server.signal(number)
    assert server.wait() == 0
    assert time.monotonic() - began < STOP_SECONDS
    server.start()
    assert consume(server.url, "orders") == list(range(100))
    assert publish(server.url, "orders", "next") == [100]


def test_a_stop_answers_long_polls_instead_of_waiting_for_them(server: ServerProcess) -> None:
    create(server.url, "orders")
    answers: list[httpx.Response] = []

    def poll() -> None:
        body = {"topic": "orders", "start": "latest", "timeout_ms": 30_000}
        answers.append(httpx.post(f"{server.url}/api/topics/consume", json=body, timeout=30 + PATIENCE_SECONDS))

    polling = threading.Thread(target=poll)
    polling.start()
    wait_for_metric(server.url, "tailrace_fetch_waiters", 1)
    began = time.monotonic()
    assert server.terminate() == 0
    polling.join()
    assert time.monotonic() - began < STOP_SECONDS
    assert [answer.status_code for answer in answers] == [503]
    assert answers[0].json()["retriable"] is True


def test_sigkill_keeps_every_acknowledged_record(server: ServerProcess) -> None:
    create(server.url, "orders")
    publish(server.url, "orders", *range(500))
    server.kill()
    server.start()
    assert consume(server.url, "orders") == list(range(500))
    assert publish(server.url, "orders", "next") == [500]


def test_a_second_server_on_the_folder_gets_one_clear_line(server: ServerProcess) -> None:
    code, stderr = refused("--data", str(server.folder), "--http", "127.0.0.1:0")
    assert code == 1
    assert re.fullmatch(rf"tailrace: .*{server.folder}.*\n", stderr)
    assert health(server) == 200


def test_a_taken_port_gets_one_clear_line(server: ServerProcess, tmp_path: Path) -> None:
    address = server.url.removeprefix("http://")
    code, stderr = refused("--data", str(tmp_path / "other"), "--http", address)
    assert code == 1
    assert stderr.startswith(
        f"tailrace: can't listen on {address}: Address already in use; stop the process that listens there with"
        f" `kill {server.pid}` ({sys.executable} -m tailrace serve --data {server.folder}"
    )
    assert stderr.endswith("), or choose another with --http\n")
    assert not (tmp_path / "other").exists()


def test_a_bad_configuration_file_gets_one_clear_line(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\npayload_byte = 1\n")
    code, stderr = refused("--data", str(tmp_path / "data"), "--config", str(config))
    assert code == 1
    assert re.fullmatch(r"tailrace: .*unknown key limits\.payload_byte; did you mean 'payload_bytes'\?\n", stderr)
    assert not (tmp_path / "data").exists()


def test_an_address_that_others_can_reach_gets_one_clear_line(tmp_path: Path) -> None:
    code, stderr = refused("--data", str(tmp_path / "data"), "--http", "0.0.0.0:0")
    assert code == 1
    assert re.fullmatch(r"tailrace: 0\.0\.0\.0:0 can be reached from other machines.*--allow-remote.*\n", stderr)


def test_a_folder_that_can_not_be_made_gets_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    code, stderr = refused("--data", str(file / "data"), "--http", "127.0.0.1:0")
    assert code == 74
    assert re.fullmatch(rf"tailrace: .*{file}.*No folder can be created there; choose another one with --data\n", stderr)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
def test_a_folder_that_is_not_writable_gets_one_clear_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o555)
    code, stderr = refused("--data", str(folder), "--http", "127.0.0.1:0")
    assert code == 74
    assert re.fullmatch(rf"tailrace: .*{folder}.*Let the user \d+ write there, or choose another folder with --data\n", stderr)


def test_a_taken_kafka_port_gets_one_clear_line(server: ServerProcess, tmp_path: Path) -> None:
    code, stderr = refused("--data", str(tmp_path / "other"), "--http", "127.0.0.1:0", "--kafka", server.kafka)
    assert code == 1
    assert f"{server.kafka}: Address already in use; stop the process that listens there with `kill {server.pid}`" in stderr
    assert stderr.endswith("), or choose another with --kafka\n")
    assert len(stderr.splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_a_failed_sync_stops_it_with_one_line_and_its_own_exit_code(tmp_path: Path) -> None:
    marker = tmp_path / "fail"
    environment = {"FAIL_SYNC_IF": str(marker), "FAIL_SYNC_OF": "in doubt"}
    with ServerProcess(tmp_path / "data", module="tests.support.failing_sync", environment=environment) as server:
        create(server.url, "orders")
        publish(server.url, "orders", "kept")
        marker.touch()
        body = {"messages": [{"topic": "orders", "value": "in doubt"}]}
        answer = httpx.post(f"{server.url}/api/topics/publish", json=body, timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.json()["outcome"]) == (503, "unknown")
        assert server.wait() == 74
        assert re.fullmatch(r"tailrace: storage failed.*Input/output error.*\n", server.stderr)
        marker.unlink()
        server.start()
        assert consume(server.url, "orders")[0] == "kept"


@pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))
@pytest.mark.parametrize("at", [1, 2])
def test_a_read_that_the_disk_fails_names_the_file_and_is_logged(tmp_path: Path, at: int) -> None:
    """The first read of the segment is of its header, the second of records."""
    with ServerProcess(tmp_path / "data") as server:
        create(server.url, "orders")
        publish(server.url, "orders", *range(10))
        assert server.terminate() == 0
    with ServerProcess(tmp_path / "data", environment=failing_call("pread", "log", at).environment) as server:
        body = {"topic": "orders", "start": 0}
        answers = [httpx.post(f"{server.url}/api/topics/consume", json=body, timeout=PATIENCE_SECONDS) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [500, 200]
        (segment,) = (server.folder / "log").iterdir()
        assert f"{segment} can't be read at byte" in answers[0].json()["detail"]
        assert "Input/output error" in answers[0].json()["detail"]
        assert f"{segment} can't be read at byte" in server.stderr


@pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))
def test_a_start_on_a_log_that_the_disk_can_not_read_names_the_file(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        create(server.url, "orders")
        server.kill()
    (segment,) = (server.folder / "log").iterdir()
    before = segment.read_bytes()
    server = ServerProcess(tmp_path / "data", environment=failing_call("pread", "log", 1).environment)
    server.launch()
    assert server.wait() == 1
    assert f"tailrace: {segment} can't be read at byte 0 (Input/output error). Check the disk\n" in server.stderr
    assert segment.read_bytes() == before


def test_no_room_is_an_answer_and_service_goes_on_when_there_is_room(server: ServerProcess) -> None:
    create(server.url, "orders")
    size = max(file.stat().st_size for file in (server.folder / "log").iterdir())
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
    with pytest.raises(httpx.HTTPStatusError, match="507"):
        publish(server.url, "orders", "x" * 1000)
    assert health(server) == 200
    assert consume(server.url, "orders") == []
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert publish(server.url, "orders", "x" * 1000) == [0]


def test_it_is_ready_soon(tmp_path: Path) -> None:
    """By the CPU that it takes, since other tests run beside it; `make bench` looks at the clock."""
    took = []
    for number in range(3):
        with ServerProcess(tmp_path / str(number)) as server:
            used = psutil.Process(server.pid).cpu_times()
            took.append(used.user + used.system)
    assert min(took) < START_SECONDS


def test_relaxed_durability_is_said_and_kept_across_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--durability", "relaxed") as server:
        assert "durability relaxed" in server.ready_line
        create(server.url, "orders")
        publish(server.url, "orders", *range(50))
        server.kill()
        server.start()
        assert consume(server.url, "orders") == list(range(50))


def test_more_connections_than_the_limit_are_turned_away(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nconnections = 4\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port))) for _ in range(8)]
        assert health(server) == 503
        for connection in held:
            connection.close()
        eventually(lambda: health(server) == 200, "there is room again", PATIENCE_SECONDS)
