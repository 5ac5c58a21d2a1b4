"""`tailrace publish` and `tailrace consume`: what goes in comes out, in order, and nothing is claimed that is not so."""

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tailrace.cli.command_line import MessageFormat, ServerLogin
from tailrace.cli.consume import ConsumeLoop
from tailrace.cli.display import MessagePrinter
from tailrace.cli.server_api import ServerApi
from tests.integration.cli.commands import SECONDS, Commands
from tests.integration.topics import consume, create, publish
from tests.support.eventually import eventually
from tests.support.server import ServerProcess


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    name = f"t.{request.node.name.partition('[')[0]}"
    create(server.url, name)
    return name


def values(tailrace: Commands, topic: str, *flags: str) -> list[str]:
    return tailrace.done("consume", topic, "--format", "value", *flags).out.splitlines()


def test_ten_thousand_lines_arrive_in_order(tailrace: Commands, topic: str) -> None:
    lines = [f"line {number}" for number in range(10_000)]
    ended = tailrace.done("publish", topic, stdin="\n".join(lines))
    assert ended.out == f"10,000 messages stored in {topic}\n"
    assert values(tailrace, topic) == lines


def test_one_message_with_key_header_and_its_place(tailrace: Commands, topic: str, client: httpx.Client) -> None:
    ended = tailrace.done("publish", topic, '{"order": 1.50}', "--key", "ann", "--header", "trace=a=b", "--json")
    (record,) = ended.objects
    assert (record["topic_name"], record["partition_id"], record["offset"]) == (topic, 0, 0)
    (message,) = client.post("/api/topics/consume", json={"topic": topic}).json()["messages"]
    assert (message["key"], message["value"]) == ("ann", {"order": 1.5})
    assert message["headers"] == [{"name": "trace", "value": "a=b"}]
    assert values(tailrace, topic) == ['{"order": 1.50}']


def test_bytes_and_tombstones(tailrace: Commands, topic: str, client: httpx.Client) -> None:
    tailrace.done("publish", topic, "AP8=", "--as", "base64")
    tailrace.done("publish", topic, "null", "--as", "json")
    tailrace.done("publish", topic, "null")
    first, second, third = client.post("/api/topics/consume", json={"topic": topic}).json()["messages"]
    assert first["value_base64"] == "AP8="
    assert second["value"] is None
    assert third["value_base64"] == "bnVsbA=="


def test_keys_stand_before_the_separator(tailrace: Commands, topic: str) -> None:
    tailrace.done("publish", topic, "--key-separator", "::", stdin="a::1\nb::2::3\n")
    found = tailrace.done("consume", topic, "--json").objects
    assert [(message["key"], message.get("value", message.get("value_base64"))) for message in found] == [
        ("a", 1),
        ("b", "Mjo6Mw=="),
    ]


def test_an_error_says_what_is_stored(tailrace: Commands, topic: str, client: httpx.Client) -> None:
    lines = [json.dumps(number) for number in range(25)] + ["no JSON"] + ["1"]
    ended = tailrace.run("publish", topic, "--as", "json", "--batch", "10", stdin="\n".join(lines))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[0] == f"20 messages stored in {topic}; nothing is stored from line 21 on"
    assert "line 26 is not JSON" in ended.err
    assert consume(str(client.base_url), topic) == list(range(20))


def test_a_slow_pipe_is_published_as_it_comes(tailrace: Commands, topic: str, server: ServerProcess) -> None:
    publishing = tailrace.start("publish", topic, stdin=subprocess.PIPE)
    assert publishing.stdin is not None
    publishing.stdin.write(b"1\n")
    publishing.stdin.flush()
    eventually(lambda: consume(server.url, topic) == [1], "the line is stored", SECONDS)
    out, _ = publishing.communicate(timeout=SECONDS)
    assert (publishing.returncode, out.decode()) == (0, f"1 message stored in {topic}\n")


def test_a_topic_that_is_not_there_gets_one_clear_line(tailrace: Commands) -> None:
    ended = tailrace.run("publish", "no.such", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "no.such" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_group_goes_on_after_what_it_has_acked(tailrace: Commands, topic: str) -> None:
    tailrace.done("publish", topic, stdin="1\n2\n3\n4\n5\n")
    assert values(tailrace, topic, "--group", "g", "--limit", "2") == ["1", "2"]
    assert values(tailrace, topic, "--group", "g", "--limit", "2", "--ack") == ["1", "2"]
    assert values(tailrace, topic, "--group", "g", "--ack") == ["3", "4", "5"]
    assert values(tailrace, topic, "--group", "g") == []


def test_places_to_begin(tailrace: Commands, topic: str) -> None:
    tailrace.done("publish", topic, stdin="1\n2\n3\n")
    assert values(tailrace, topic, "--from", "1") == ["2", "3"]
    assert values(tailrace, topic, "--from", "latest") == []
    assert values(tailrace, topic, "--from", "1h", "--partition", "0") == ["1", "2", "3"]
    ended = tailrace.run("consume", topic, "--from", "99")
    assert ended.code == 1
    assert "99" in ended.err


def test_following_waits_for_what_comes(tailrace: Commands, topic: str) -> None:
    following = tailrace.start("consume", topic, "--follow", "--format", "value")
    assert following.stdout is not None
    tailrace.done("publish", topic, "first")
    assert following.stdout.readline() == b"first\n"
    tailrace.done("publish", topic, "second")
    assert following.stdout.readline() == b"second\n"
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=SECONDS)
    assert (following.returncode, out, err) == (0, b"", b"")


def test_following_goes_on_when_the_server_is_back(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Commands(server.url) as tailrace:
        server.flags = ("--http", server.url.removeprefix("http://"))
        create(server.url, "orders")
        publish(server.url, "orders", 1, 2)
        following = tailrace.start(
            "consume", "orders", "--follow", "--group", "g", "--ack", "--limit", "3", "--format", "value"
        )
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        server.kill()
        server.start()
        publish(server.url, "orders", 3)
        out, _ = following.communicate(timeout=SECONDS)
        assert (following.returncode, out) == (0, b"3\n")
        (group,) = tailrace.done("groups", "describe", "g", "--json").objects
        assert group["lag"] == 0


def test_following_ends_where_there_is_no_topic(tailrace: Commands) -> None:
    ended = tailrace.run("consume", "no.such", "--follow")
    assert ended.code == 1
    assert "no.such" in ended.err


def test_following_sees_partitions_that_come_later(
    tailrace: Commands, server: ServerProcess, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with ServerApi(ServerLogin(server.url)) as api:
        first = {"topic": topic, "group_id": None, "partition_id": None}
        reading = ConsumeLoop(
            api, first, MessagePrinter(MessageFormat.VALUE, with_topic=False), None, partition_check_seconds=0
        )
        reading.step(None)
        tailrace.done("topics", "alter", topic, "--partitions", "2")
        tailrace.done("publish", topic, "in the new one", "--partition", "1")
        reading.look_for_new_partitions()
        reading.step(None)
    assert capfd.readouterr().out == "in the new one\n"


@pytest.mark.parametrize("flags", [(), ("--group", "again", "--ack")], ids=["alone", "for a group"])
def test_following_tells_that_the_topic_was_made_again_and_reads_it_from_its_start(
    tailrace: Commands, flags: tuple[str, ...]
) -> None:
    topic = f"t.again.{len(flags)}"
    tailrace.done("topics", "create", topic)
    following = tailrace.start("consume", topic, "--follow", "--format", "value", *flags)
    assert following.stdout is not None
    tailrace.done("publish", topic, stdin="old 0\nold 1\nold 2\n")
    assert [following.stdout.readline() for _ in range(3)] == [b"old 0\n", b"old 1\n", b"old 2\n"]
    following.send_signal(signal.SIGSTOP)
    tailrace.done("topics", "delete", topic, "--yes")
    tailrace.done("topics", "create", topic)
    tailrace.done("publish", topic, stdin="new 0\nnew 1\nnew 2\nnew 3\n")
    following.send_signal(signal.SIGCONT)
    assert [following.stdout.readline() for _ in range(4)] == [b"new 0\n", b"new 1\n", b"new 2\n", b"new 3\n"]
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=SECONDS)
    assert f"topic '{topic}'".encode() in err
    assert b"reading it from its start" in err


def test_a_reader_that_has_enough_ends_it_quietly_and_acks_nothing_unread(tailrace: Commands, topic: str) -> None:
    tailrace.done("publish", topic, stdin="".join(f"{number} {'x' * 500}\n" for number in range(20_000)))
    reading = tailrace.start("consume", topic, "--group", "g", "--ack", "--format", "value")
    assert reading.stdout is not None
    assert reading.stderr is not None
    os.read(reading.stdout.fileno(), 10)
    reading.stdout.close()
    assert b"Traceback" not in reading.stderr.read()
    reading.stderr.close()
    assert reading.wait(SECONDS) != 0
    assert int(values(tailrace, topic, "--group", "g", "--limit", "1")[0].split()[0]) < 2_000
