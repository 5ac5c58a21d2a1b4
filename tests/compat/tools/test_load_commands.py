"""Kafka's command line that makes load: what was sent is there once, in order, and is read once."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.compat.tools import topics
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import COMMANDS, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess
from tests.support.server import ServerProcess

SENT = 20_000
BYTES = 1_000
MANY = 300_000


def events(process: LoggedProcess, name: str) -> list[dict[str, object]]:
    """Return what a verifiable client has said of one kind."""
    lines = [line for line in process.output.splitlines() if f'"name":"{name}"' in line and line.endswith("}")]
    return [json.loads(line) for line in lines]


@tool(
    COMMANDS,
    "`kafka-verifiable-producer` and `kafka-verifiable-consumer`, both protocols: each record once and in order, "
    "over kills of the server",
    short=True,
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_record_comes_once_and_in_order_over_kills(own_server: ServerProcess, tmp_path: Path, protocol: str) -> None:
    kafka = CommandLine(own_server.kafka)
    topics.create(own_server.kafka, "verified")
    bound = ("--topic", "verified", "--max-messages", str(SENT))
    reading = (*bound, "--group-id", "verified", "--group-protocol", protocol, "--verbose")
    # By itself the producer does not retry what fails.
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    writing = (*bound, "--throughput", "2000", "--command-config", str(config))
    with (
        LoggedProcess(kafka.command("kafka-verifiable-consumer", *reading), tmp_path / "consumer.log") as consumer,
        LoggedProcess(kafka.command("kafka-verifiable-producer", *writing), tmp_path / "producer.log") as producer,
    ):
        for part in (4, 2):
            eventually(lambda: len(events(consumer, "record_data")) > SENT // part, "records")  # noqa: B023
            own_server.kill()
            own_server.start()
        assert producer.wait() == 0
        assert consumer.wait() == 0
        assert events(producer, "producer_send_error") == []
        sent = [str(number) for number in range(SENT)]
        assert [event["value"] for event in events(producer, "producer_send_success")] == sent
        assert [event["value"] for event in events(consumer, "record_data")] == sent
        committed = kafka.table("kafka-consumer-groups", "--describe", "--group", "verified")
        assert [row["CURRENT-OFFSET"] for row in committed] == [str(SENT)]


@tool(
    COMMANDS,
    "`kafka-producer-perf-test` (also in transactions), `kafka-consumer-perf-test` (both protocols), `kafka-e2e-latency`",
)
def test_performance_tools_count_what_the_topic_has(kafka: CommandLine, tool_server: ServerProcess) -> None:
    topics.create(tool_server.kafka, "load", partitions=2)
    load = ("--topic", "load", "--num-records", str(MANY), "--record-size", str(BYTES), "--throughput", "-1")
    said = kafka.lines("kafka-producer-perf-test", *load, "--command-property", "linger.ms=5", "batch.size=65536")
    assert said[-1].startswith(f"{MANY} records sent")
    assert topics.end(tool_server.kafka, "load") == MANY
    for protocol in ("classic", "consumer"):
        wanted = ("--topic", "load", "--group", f"load-{protocol}", "--num-records", str(MANY), "--hide-header")
        counted = kafka.lines("kafka-consumer-perf-test", *wanted, "--command-property", f"group.protocol={protocol}")
        assert counted[-1].split(", ")[4] == str(MANY)

    topics.create(tool_server.kafka, "load.transactions")
    given = ("--topic", "load.transactions", "--num-records", "5000", "--record-size", "100", "--throughput", "5000")
    kafka.lines("kafka-producer-perf-test", *given, "--transactional-id", "load", "--transaction-duration-ms", "50")
    assert len(topics.read(tool_server.kafka, "load.transactions")) == 5_000
    assert topics.end(tool_server.kafka, "load.transactions") > 5_000, "there are no markers of transactions"

    latency = "\n".join(kafka.lines("kafka-e2e-latency", "latency", "200", "all", "100"))
    percentiles = re.search(r"Percentiles: 50th = (\d+), 99th = (\d+)", latency)
    assert percentiles is not None, latency
    assert len(topics.read(tool_server.kafka, "latency")) == 200


@tool(COMMANDS, "`kafka-client-metrics`, and metrics that a producer pushes by itself (KIP-714)")
def test_metrics_of_clients_are_described_and_pushed(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[kafka]\nclient_telemetry = true\ntelemetry_interval_seconds = 1\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        kafka = CommandLine(server.kafka)
        assert kafka.lines("kafka-client-metrics", "--list") == ["tailrace"]
        described = kafka.lines("kafka-client-metrics", "--describe", "--name", "tailrace")
        assert "interval.ms=1000" in described
        refused = kafka.refused("kafka-client-metrics", "--alter", "--name", "tailrace", "--interval", "5000")
        assert "kafka.telemetry_interval_seconds" in refused
        topics.create(server.kafka, "pushed")
        load = ("--topic", "pushed", "--num-records", "1000000", "--record-size", "10", "--throughput", "1000")
        with LoggedProcess(kafka.command("kafka-producer-perf-test", *load), tmp_path / "producer.log"):
            pushed = 'tailrace_kafka_client_metric{client="perf-producer-client",metric="org.apache.kafka.producer.'
            eventually(lambda: pushed in httpx.get(f"{server.url}/metrics").text, "metrics of the producer", 60)
