"""Users move to the target and back, by one command each."""

import signal
import subprocess
import sys
import threading

import pytest
from confluent_kafka import KafkaError, Producer

from tailrace.client import Client, TailraceError
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shadow_pair import TestedShadow


@pytest.fixture
def live(outward: TestedShadow) -> TestedShadow:
    """A shadow to Kafka that is live, with a topic of ten records and a group that has read four."""
    outward.origin.create(outward.topic())
    outward.origin.numbers(outward.topic(), 0, 10)
    outward.origin.read(outward.group(), outward.topic(), 4)
    outward.create()
    outward.await_equal()
    return outward


class Sender:
    """Sends numbered values over Kafka's protocol until it is stopped, and counts what is acknowledged."""

    def __init__(self, shadow: TestedShadow) -> None:
        self.acked: list[bytes] = []
        self.refused: list[KafkaError] = []
        self._shadow = shadow
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)

    def _run(self) -> None:
        producer: Producer = self._shadow.origin.producer(**{"enable.idempotence": True, "retry.backoff.ms": 20})
        number = 0
        while not self._stopping.is_set():
            number += 1
            value = b"sent %d" % number
            producer.produce(self._shadow.topic(), value, b"k", 0, callback=self._told)
            producer.poll(0)
            self._stopping.wait(0.002)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def _told(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self.acked.append(message.value())  # type: ignore[attr-defined]
        else:
            self.refused.append(error)


def test_a_cut_over_loses_no_acknowledged_record_and_refuses_later_ones(live: TestedShadow) -> None:
    with Sender(live) as sender:
        eventually(lambda: len(sender.acked) > 50, "some records")
        said = live.command("cut-over")
        for step in ("check:", "fence:", "drain:", "verify:", "groups:", "cut over:"):
            assert step in said
        eventually(lambda: bool(sender.refused), "a record that is refused")
    assert {error.name() for error in sender.refused} == {"POLICY_VIOLATION"}
    (found,) = live.target.values(live.topic())
    assert [value for value in found if value is not None and value.startswith(b"sent")] == sender.acked
    with (
        Client(live.pair.server.url) as client,
        client.publisher() as publisher,
        pytest.raises(TailraceError, match="was cut over to the Kafka at"),
    ):
        publisher.publish(live.topic(), "too late")
    assert live.row().phase == "cut over"
    # The group goes on in the target.
    rest = live.target.read(live.group(), live.topic(), len(found) - 4)
    assert rest[:6] == [b"%d" % number for number in range(4, 10)]
    assert rest[6:] == sender.acked


def test_producers_may_be_forwarded(live: TestedShadow) -> None:
    with Sender(live) as sender:
        live.command("cut-over", "--producers", "forward")
        count = len(sender.acked)
        eventually(lambda: len(sender.acked) > count + 20, "records after the cut-over")
    assert not sender.refused
    live.await_equal()


def test_a_rehearsal_changes_nothing(live: TestedShadow) -> None:
    with Sender(live) as sender:
        said = live.command("cut-over", "--dry-run")
        count = len(sender.acked)
        eventually(lambda: len(sender.acked) > count + 20, "records after the rehearsal")
    assert "would stop producers of 1 topic" in said
    assert "nothing was changed" in said
    assert not sender.refused
    assert live.row().phase == "copying"


def test_everything_can_be_compared(live: TestedShadow) -> None:
    assert "all records are equal" in live.command("cut-over", "--verify", "all")


def test_a_difference_gives_the_cut_over_up(live: TestedShadow) -> None:
    """Somebody writes to the target, which then differs from the origin."""
    live.target.send(live.topic(), [(b"k3", b"somebody else's")])
    live.origin.numbers(live.topic(), 10, 1)
    eventually(lambda: len(live.target.values(live.topic())[0]) == 12, "both records")
    said = live.command("cut-over", code=1)
    assert "fence:     given up: topics take records here again" in said
    assert "partition 0 of topic" in said
    assert "differs at offset 10 of the origin" in said
    assert live.row().phase == "copying"
    live.origin.numbers(live.topic(), 11, 1)
    verified = live.command("verify", code=1)
    assert "the value is b'10' at the origin and b\"somebody else's\" in the target" in verified


def test_an_open_transaction_is_waited_for_and_then_the_cut_over_is_given_up(live: TestedShadow) -> None:
    producer = live.origin.producer(**{"transactional.id": live.topic()})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(live.topic(), b"open", b"k", 0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    said = live.command("cut-over", "--drain-seconds", "1", code=1)
    assert "1 transaction still open" in said
    producer.commit_transaction()
    live.command("cut-over")
    assert live.target.values(live.topic())[0][-1] == b"open"


def test_a_command_that_is_killed_leaves_no_fence_for_long(live: TestedShadow) -> None:
    producer = live.origin.producer(**{"transactional.id": live.topic()})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(live.topic(), b"open", b"k", 0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    command = [sys.executable, "-m", "tailrace", "shadow", "cut-over", live.name, "--server", live.pair.server.url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: live.row().phase == "fenced", "the fence")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
        assert live.row().phase == "copying"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: live.row().phase == "fenced", "the fence")
        process.kill()
    eventually(lambda: live.row().phase == "copying", "the end of the fence")
    live.await_note("was given up: the command was not heard of")
    producer.commit_transaction()
    live.await_equal()


def test_a_shadow_that_is_not_live_can_not_be_cut_over(outward: TestedShadow) -> None:
    outward.origin.create(outward.topic())
    outward.create(awaits=None, copied_by="command")
    assert "is not live" in outward.command("cut-over", code=1)


def test_a_cut_over_is_rolled_back_with_the_offsets_of_groups(live: TestedShadow) -> None:
    live.origin.numbers(live.topic(), 10, 10)
    live.await_equal()
    live.command("cut-over")
    assert live.target.read(live.group(), live.topic(), 9) == [b"%d" % number for number in range(4, 13)]
    assert "nothing was changed" in live.command("roll-back", "--dry-run")
    assert live.row().phase == "cut over"
    live.command("roll-back")
    assert live.row().phase == "copying"
    live.origin.numbers(live.topic(), 20, 1)
    assert live.origin.read(live.group(), live.topic(), 8) == [b"%d" % number for number in range(13, 21)]
    live.await_equal()


def test_a_cut_over_can_not_be_rolled_back_when_others_have_written_to_the_target(live: TestedShadow) -> None:
    live.command("cut-over")
    live.target.numbers(live.topic(), 10, 1)
    said = live.command("roll-back", code=1)
    assert "records were written to partition 0 of topic" in said
    assert live.row().phase == "cut over"


def test_a_deleted_topic_is_not_made_again_after_the_cut_over(live: TestedShadow) -> None:
    live.command("cut-over")
    live.target.delete(live.topic())
    live.await_note("was deleted in the target after the cut-over")
    assert live.topic() not in live.target.topics()


def test_topics_of_a_kafka_are_taken_over_when_it_is_quiet(inward: TestedShadow) -> None:
    topic, group = inward.topic(), inward.group()
    inward.origin.create(topic)
    inward.origin.numbers(topic, 0, 10)
    inward.origin.read(group, topic, 3)
    inward.create()
    inward.await_equal()
    with Sender(inward):
        said = inward.command("cut-over", "--quiet-seconds", "0.5", "--drain-seconds", "2", code=1)
        assert "records are still written to the Kafka" in said
    said = inward.command("cut-over", "--quiet-seconds", "0.5")
    assert "1 topic" in said
    eventually(lambda: not inward.processes(), "the end of the process")
    assert inward.target.read(group, topic, 7)[:7] == [b"%d" % number for number in range(3, 10)]
    inward.command("roll-back")
    inward.origin.numbers(topic, 99, 1)
    inward.await_equal()
