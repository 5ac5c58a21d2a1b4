"""Cut-overs of a real server under real clients: fences, restarts, and commands that die."""

import asyncio
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from tailrace.client import Client, TailraceError
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

TOPIC = "app.orders"
PARTITIONS = 3
CLIENTS = 40
REFUSE = {"owner": "a test", "producers": "refuse"}
CREATE = "CREATE SHADOW prod TO KAFKA 'kafka.example:9092' WITH (topics = 'app.>', copied_by = 'command')"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nshadow_fence_silence_seconds = 100\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture
def api(server: ServerProcess) -> Api:
    api = Api(server.url)
    api.create_topic(TOPIC, PARTITIONS)
    api.create_topic("other")
    api.sql(CREATE)
    return api


def fence(api: Api, **fields: Any) -> Any:
    return api.ask("/api/shadows/prod/fence", {**REFUSE, **fields})


def ends(api: Api) -> list[int]:
    return [row[0] for row in api.sql("SELECT end_offset FROM system.partitions WHERE topic = ? ORDER BY partition_id", TOPIC)]


def phase(api: Api) -> str:
    ((found,),) = api.sql("SELECT phase FROM system.shadows")
    return str(found)


def stored(server: ServerProcess) -> list[str]:
    """Return all committed values of the topic, as a client reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    values, at_end = [], 0
    while at_end < PARTITIONS:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            at_end += 1
    consumer.close()
    return values


class Sender:
    """Sends numbered values one after the other, each until it has an answer, and remembers what became of them."""

    def __init__(self, server: ServerProcess, number: int) -> None:
        self.acked: list[str] = []
        self.refused: dict[str, str] = {}
        self._stopping = threading.Event()
        self._server = server
        self._number = number
        run = (self._by_http, self._by_kafka, self._in_transactions)[number % 3]
        self._thread = threading.Thread(target=run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _values(self) -> Iterator[str]:
        for at in range(1_000_000):
            if self._stopping.is_set() or self.refused:
                return
            yield f"{self._number}-{at}"

    def _by_http(self) -> None:
        with Client(self._server.url) as client, client.publisher() as publisher:
            for value in self._values():
                try:
                    publisher.publish(TOPIC, value)
                    self.acked.append(value)
                except TailraceError as error:
                    self.refused[value] = type(error).__name__

    def _by_kafka(self) -> None:
        producer = Producer({"bootstrap.servers": self._server.kafka, "enable.idempotence": True, "linger.ms": 0})
        for value in self._values():

            def delivered(error: KafkaError | None, _: object, value: str = value) -> None:
                if error is None:
                    self.acked.append(value)
                else:
                    self.refused[value] = str(error.name())

            producer.produce(TOPIC, value.encode(), on_delivery=delivered)
            producer.flush(PATIENCE_SECONDS)

    def _in_transactions(self) -> None:
        producer = Producer({"bootstrap.servers": self._server.kafka, "transactional.id": f"tx-{self._number}", "linger.ms": 0})
        producer.init_transactions(PATIENCE_SECONDS)
        for value in self._values():
            try:
                producer.begin_transaction()
                producer.produce(TOPIC, value.encode())
                producer.commit_transaction(PATIENCE_SECONDS)
                self.acked.append(value)
            except KafkaException as error:
                self.refused[value] = str(error.args[0].name())
                producer.abort_transaction(PATIENCE_SECONDS)


def check_history(server: ServerProcess, senders: list[Sender]) -> None:
    found = stored(server)
    values = [value.strip('"') for value in found]
    acked = [value for sender in senders for value in sender.acked]
    refused = {value for sender in senders for value in sender.refused}
    assert len(values) == len(set(values)), "something is stored twice"
    assert set(acked) <= set(values), "something that was acknowledged is missing"
    assert not refused & set(values), "something that was refused is stored"
    assert set(values) == set(acked)


def test_forty_clients_wait_while_a_fence_is_there_and_go_on_behind_it(server: ServerProcess, api: Api) -> None:
    senders = [Sender(server, number) for number in range(CLIENTS)]
    try:
        eventually(lambda: all(sender.acked for sender in senders), "a record of each client")
        fenced = fence(api)
        eventually(lambda: fence(api, fence=fenced["fence"])["open_transactions"] == 0, "the end of open transactions")
        before = ends(api)
        counts = [len(sender.acked) for sender in senders]
        # Each asks many times meanwhile: these answers come after theirs.
        for _ in range(20):
            assert ends(api) == before
        api.ask("/api/shadows/prod/unfence", {"fence": fenced["fence"]})
        eventually(
            lambda: all(len(sender.acked) > count + 1 for sender, count in zip(senders, counts, strict=True)),
            "more records of each client",
        )
    finally:
        for sender in senders:
            sender.stop()
    assert [sender.refused for sender in senders if sender.refused] == []
    check_history(server, senders)


def test_forty_clients_learn_that_their_topic_was_cut_over(server: ServerProcess, api: Api) -> None:
    senders = [Sender(server, number) for number in range(CLIENTS)]
    try:
        eventually(lambda: all(sender.acked for sender in senders), "a record of each client")
        number = fence(api)["fence"]
        eventually(lambda: fence(api, fence=number)["open_transactions"] == 0, "the end of open transactions")
        last = [one[4] for one in fence(api, fence=number)["partitions"]]
        api.ask("/api/shadows/prod/cut-over", {"fence": number, "producers": "refuse"})
        eventually(lambda: all(sender.refused for sender in senders), "a refusal of each client")
    finally:
        for sender in senders:
            sender.stop()
    assert ends(api) == last
    why = {error for sender in senders for error in sender.refused.values()}
    assert why == {"CutOverTopicError", "POLICY_VIOLATION"}
    check_history(server, senders)


@pytest.mark.parametrize("kills", ["in the fence", "after the cut-over"])
def test_what_was_decided_survives_a_kill_of_the_server(server: ServerProcess, api: Api, kills: str) -> None:
    kafka = re.sub(r".*:", "127.0.0.1:", server.kafka)
    flags = ("--kafka", kafka, "--http", server.url.removeprefix("http://"))
    number = fence(api)["fence"]
    if kills == "in the fence":
        producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
        outcomes: list[KafkaError | None] = []
        producer.produce(TOPIC, b"waiting", on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
        server.kill()
        server.flags = (*server.flags, *flags)
        server.start()
        assert phase(api) == "fenced"
        assert fence(api, fence=number)["partitions"][0][4] == 0
        producer.poll(0)
        assert outcomes == []
        api.ask("/api/shadows/prod/unfence", {"fence": number})
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert outcomes == [None]
        assert stored(server) == ["waiting"]
    else:
        api.ask("/api/shadows/prod/cut-over", {"fence": number, "producers": "refuse"})
        server.kill()
        server.start()
        again = Api(server.url)
        assert phase(again) == "cut over"
        with pytest.raises(AssertionError, match="was cut over to the Kafka at"):
            again.ask("/api/topics/publish", {"messages": [{"topic": TOPIC, "value": 1}]})
        again.ask("/api/shadows/prod/roll-back", {})
        server.kill()
        server.start()
        assert phase(Api(server.url)) == "copying"
        Api(server.url).ask("/api/topics/publish", {"messages": [{"topic": TOPIC, "value": 1}]})


@pytest.mark.parametrize("point", range(4))
def test_a_fence_is_whole_or_not_there_when_the_server_is_killed_while_it_begins(
    server: ServerProcess, api: Api, point: int
) -> None:
    senders = [Sender(server, 3 * number) for number in range(4)]
    try:
        eventually(lambda: all(sender.acked for sender in senders), "a record of each client")
        asking = threading.Thread(target=lambda: _ignoring_errors(lambda: fence(api)))
        asking.start()
        asking.join(point * 0.002)
        server.kill()
        asking.join()
        server.flags = (*server.flags, "--http", server.url.removeprefix("http://"))
        server.start()
        found = phase(api)
        if found == "fenced":
            before = ends(api)
            assert ends(api) == before
            api.ask("/api/shadows/prod/unfence", {})
        counts = [len(sender.acked) for sender in senders]
        eventually(
            lambda: all(len(sender.acked) > count for sender, count in zip(senders, counts, strict=True)), "more records"
        )
    finally:
        for sender in senders:
            sender.stop()
    assert [sender.refused for sender in senders if sender.refused] == []
    acked = {value for sender in senders for value in sender.acked}
    assert acked <= {value.strip('"') for value in stored(server)}


def _ignoring_errors(call: Any) -> None:
    try:
        call()
    except (AssertionError, OSError):
        return


_COMMAND = """
import sys, time
from tests.support.api import Api
api = Api(sys.argv[1])
number = None
while True:
    number = api.ask("/api/shadows/prod/fence", {"owner": "the command", "producers": "refuse", "fence": number})["fence"]
    print(number, flush=True)
    time.sleep(0.1)
"""


def test_a_command_that_is_killed_leaves_no_fence(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nshadow_fence_silence_seconds = 1\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        api = Api(server.url)
        api.create_topic(TOPIC, PARTITIONS)
        api.sql(CREATE)
        command = subprocess.Popen([sys.executable, "-c", _COMMAND, server.url], stdout=subprocess.PIPE, text=True)
        try:
            assert command.stdout is not None
            # It is kept for longer than a silent one would be.
            lines = [command.stdout.readline() for _ in range(15)]
            assert lines == ["1\n"] * 15
            assert phase(api) == "fenced"
        finally:
            command.kill()
            command.communicate()
        producer = Producer({"bootstrap.servers": server.kafka})
        producer.produce(TOPIC, b"waited")
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert phase(api) == "copying"
        ((notes,),) = api.sql("SELECT notes FROM system.shadows")
        assert notes == [
            "the cut-over by the command was given up: the command was not heard of for 1 s. Topics take records again"
        ]
        assert stored(server) == ["waited"]


def test_a_transaction_ends_in_the_fence_and_the_next_one_waits(server: ServerProcess, api: Api) -> None:
    producer = Producer({"bootstrap.servers": server.kafka, "transactional.id": "tx"})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"before", partition=0)
    producer.flush(PATIENCE_SECONDS)
    fenced = fence(api)
    assert (fenced["open_transactions"], fenced["partitions"][0][3:]) == (1, [0, 1])
    producer.commit_transaction(PATIENCE_SECONDS)
    after = fence(api, fence=1)
    assert (after["open_transactions"], after["partitions"][0][3:]) == (0, [0, 2])
    producer.begin_transaction()
    producer.produce(TOPIC, b"behind", partition=0)
    committing = threading.Thread(target=producer.commit_transaction, args=(PATIENCE_SECONDS,))
    committing.start()
    assert fence(api, fence=1)["partitions"][0][3:] == [0, 2]
    assert committing.is_alive()
    api.ask("/api/shadows/prod/unfence", {"fence": 1})
    committing.join(PATIENCE_SECONDS)
    assert stored(server) == ["before", "behind"]


def test_topics_that_kafka_clients_create_or_create_again_are_fenced(server: ServerProcess, api: Api) -> None:
    number = fence(api)["fence"]
    api.ask("/api/shadows/prod/cut-over", {"fence": number, "producers": "refuse"})
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_SECONDS)
    for name in (TOPIC, "app.new", "unrelated"):
        admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_SECONDS)
    outcomes: dict[str, str | None] = {}
    producer = Producer({"bootstrap.servers": server.kafka})
    for name in (TOPIC, "app.new", "unrelated"):
        producer.produce(
            name, b"v", on_delivery=lambda error, message: outcomes.update({message.topic(): error and error.name()})
        )
    producer.flush(PATIENCE_SECONDS)
    assert outcomes == {TOPIC: "POLICY_VIOLATION", "app.new": "POLICY_VIOLATION", "unrelated": None}


def _send_by_kafka_python(kafka: str, value: bytes) -> str | None:
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all", enable_idempotence=True)
    try:
        producer.send(TOPIC, value, partition=0).get(PATIENCE_SECONDS)
    except KafkaPythonError as error:
        return type(error).__name__
    finally:
        producer.close()
    return None


def _send_by_aiokafka(kafka: str, value: bytes) -> str | None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True) as producer:
            await asyncio.wait_for(producer.send_and_wait(TOPIC, value, partition=0), PATIENCE_SECONDS)

    try:
        asyncio.run(send())
    except AioKafkaError as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize("send", [_send_by_kafka_python, _send_by_aiokafka], ids=["kafka-python", "aiokafka"])
def test_other_clients_wait_for_the_end_of_a_fence_and_learn_of_a_cut_over(
    server: ServerProcess, api: Api, send: Callable[[str, bytes], str | None]
) -> None:
    number = fence(api)["fence"]
    outcomes: list[str | None] = []
    sending = threading.Thread(target=lambda: outcomes.append(send(server.kafka, b"waited")))
    sending.start()
    eventually(lambda: _produces(server) > 1, "a produce that is sent again")
    assert (outcomes, sending.is_alive()) == ([], True)
    api.ask("/api/shadows/prod/unfence", {"fence": number})
    sending.join(PATIENCE_SECONDS)
    assert outcomes == [None]
    assert stored(server) == ["waited"]
    number = fence(api)["fence"]
    api.ask("/api/shadows/prod/cut-over", {"fence": number, "producers": "refuse"})
    assert send(server.kafka, b"refused") == "PolicyViolationError"
    assert stored(server) == ["waited"]


def _produces(server: ServerProcess) -> float:
    """Return how many produce requests the server has answered."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=PATIENCE_SECONDS) as page:  # noqa: S310  the test's own server
        text = page.read().decode()
    found = re.findall(r'^tailrace_kafka_requests_total\{api="Produce"\} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))
