"""Kafka's command line for groups of both protocols: consumers that run, and what tools see of them and do to them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.tools.commands import CommandLine, rows_of
from tests.compat.tools.programs import COMMANDS, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess

PROTOCOLS = ("classic", "consumer")
PARTITIONS = 4
Offsets = dict[int, tuple[str, str, str]]
"""By partition: the group's offset, the end, and the lag, as they are printed."""


@contextmanager
def consuming(kafka: CommandLine, folder: Path, topic: str, group: str, protocol: str) -> Iterator[LoggedProcess]:
    """Run a console consumer that prints the partition and offset of each record."""
    command = kafka.command(
        "kafka-console-consumer",
        *("--topic", topic, "--group", group, "--from-beginning"),
        *("--command-property", f"group.protocol={protocol}"),
        *("--command-property", "auto.commit.interval.ms=200"),
        *("--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true"),
    )
    with LoggedProcess(command, folder / f"{group}-{len(list(folder.iterdir()))}.log") as process:
        yield process


def read_by(*processes: LoggedProcess) -> list[tuple[int, int]]:
    """Return partition and offset of each record that was printed."""
    found = re.findall(r"Partition:(\d+)\tOffset:(\d+)\t", "\n".join(process.output for process in processes))
    return sorted((int(partition), int(offset)) for partition, offset in found)


def fill(kafka: CommandLine, topic: str, count: int) -> None:
    """Produce records with keys, which are spread over the partitions."""
    given = "".join(f"k{number}:v{number}\n" for number in range(count))
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    kafka.lines("kafka-console-producer", "--topic", topic, *properties, given=given)


def offsets_of(kafka: CommandLine, group: str) -> Offsets:
    rows = kafka.table("kafka-consumer-groups", "--describe", "--group", group)
    return {int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows}


def state_of(kafka: CommandLine, group: str) -> tuple[str, str]:
    said = kafka.lines("kafka-consumer-groups", "--describe", "--group", group, "--state")
    words = said[-1].split()
    return words[-2], words[-1]


@tool(
    COMMANDS,
    "`kafka-console-consumer` with `group.protocol` `classic` and `consumer`: two share a topic, one leaves; "
    "`kafka-consumer-groups --describe` of offsets, members and state",
    short=True,
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_a_topic_and_are_described(kafka: CommandLine, tmp_path: Path, protocol: str) -> None:
    topic, group = f"shared.{protocol}", f"shared-{protocol}"
    kafka.lines("kafka-topics", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    fill(kafka, topic, 100)
    with (
        consuming(kafka, tmp_path, topic, group, protocol) as one,
        consuming(kafka, tmp_path, topic, group, protocol) as other,
    ):
        eventually(lambda: len(read_by(one, other)) >= 100, "100 records")

        def shares() -> list[int]:
            rows = kafka.table("kafka-consumer-groups", "--describe", "--group", group, "--members")
            return [int(row["#PARTITIONS"]) for row in rows]

        eventually(lambda: shares() == [2, 2], "two members with two partitions each")
        assert state_of(kafka, group) == ("Stable", "2")
        fill(kafka, topic, 100)
        eventually(lambda: len(set(read_by(one, other))) == 200, "200 records")
        eventually(lambda: {lag for _, _, lag in offsets_of(kafka, group).values()} == {"0"}, "commits of everything")
        kind = "Consumer" if protocol == "consumer" else "Classic"
        assert [group, kind, "consumer"] in [line.split() for line in kafka.lines("kafka-groups", "--list")]
        assert "is not empty" in kafka.refused("kafka-consumer-groups", "--delete", "--group", group)
        reset = ("--reset-offsets", "--to-earliest", "--all-topics", "--execute")
        refused = kafka.refused("kafka-consumer-groups", "--group", group, *reset)
        assert "current state is Stable" in refused
        other.terminate()
        eventually(lambda: shares() == [PARTITIONS], "one member with all partitions")
    # Both consumers began at the beginning, and what was committed was not read again.
    assert read_by(one, other) == sorted(set(read_by(one, other)))


@tool(
    COMMANDS,
    "`kafka-consumer-groups --reset-offsets`: to earliest, latest, offset, date, duration, by shift, from a file; "
    "`--delete-offsets`, `--delete`",
    short=True,
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_of_groups_are_reset_and_groups_deleted(kafka: CommandLine, tmp_path: Path, protocol: str) -> None:
    topic, group = f"reset.{protocol}", f"reset-{protocol}"
    kafka.lines("kafka-topics", "--create", "--topic", topic)
    fill(kafka, topic, 20)

    def consume(count: int) -> list[str]:
        """Read as a member of the group, from where it is."""
        where = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "60000")
        settings = ("--command-property", f"group.protocol={protocol}", "--max-messages", str(count))
        return kafka.lines("kafka-console-consumer", *where, *settings)

    def reset(*how: str, execute: bool = True) -> list[str]:
        where = ("--group", group, "--reset-offsets", "--topic", topic)
        said = kafka.lines("kafka-consumer-groups", *where, *how, "--execute" if execute else "--dry-run")
        return [row["NEW-OFFSET"] for row in rows_of(said)]

    assert consume(20) == [f"v{number}" for number in range(20)]
    assert offsets_of(kafka, group) == {0: ("20", "20", "0")}
    assert reset("--to-offset", "5", execute=False) == ["5"]
    assert offsets_of(kafka, group) == {0: ("20", "20", "0")}
    assert reset("--to-offset", "5") == ["5"]
    assert reset("--shift-by", "7") == ["12"]
    assert consume(3) == ["v12", "v13", "v14"]
    assert offsets_of(kafka, group) == {0: ("15", "20", "5")}
    assert reset("--to-latest") == ["20"]
    assert reset("--to-earliest") == ["0"]
    assert reset("--to-offset", "99") == ["20"]
    assert reset("--to-datetime", "2020-01-01T00:00:00.000") == ["0"]
    assert reset("--by-duration", "P1D") == ["0"]
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,11\n")
    assert reset("--from-file", str(plan)) == ["11"]
    assert consume(1) == ["v11"]

    assert kafka.table("kafka-consumer-groups", "--group", group, "--delete-offsets", "--topic", topic) == [
        {"TOPIC": topic, "PARTITION": "0", "STATUS": "Successful"}
    ]
    assert offsets_of(kafka, group) == {}
    assert state_of(kafka, group) == ("Empty", "0")
    kafka.lines("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in kafka.lines("kafka-consumer-groups", "--list")
    assert f"there is no group '{group}'" in kafka.refused("kafka-consumer-groups", "--describe", "--group", group)
