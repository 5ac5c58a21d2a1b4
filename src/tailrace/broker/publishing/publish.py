"""Messages for any number of topics, in one commit: all of them are there, or none.

A message gets a partition by its key, else the next one in turn, and an id that travels with it as a header.
"""

from collections.abc import Sequence

from tailrace.broker.commits.commit import Committer
from tailrace.broker.payloads.payloads import Payloads
from tailrace.broker.payloads.references import PayloadReferences
from tailrace.broker.publishing.admission import check_batch_size, check_message, message_id_of, reserved
from tailrace.broker.publishing.dedup import fingerprint_of_content, fingerprint_of_id
from tailrace.broker.publishing.intake import Intake
from tailrace.broker.publishing.publish_messages import Prepared, PublishMessages, PublishOnce, Routed
from tailrace.broker.publishing.publishers import Publishers
from tailrace.broker.publishing.snowflake import Snowflakes
from tailrace.model.errors import LimitExceededError
from tailrace.model.record import MESSAGE_ID_HEADER, Message, NumberedPublish, Published, Record
from tailrace.wire.batch import HEADER_BYTES
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import encode_batch, encoded_size_bound


class Publisher:
    def __init__(
        self,
        intake: Intake,
        committer: Committer,
        snowflakes: Snowflakes,
        publishers: Publishers,
        payloads: Payloads,
        references: PayloadReferences,
    ) -> None:
        self._intake = intake
        self._committer = committer
        self._snowflakes = snowflakes
        self._publishers = publishers
        self._payloads = payloads
        self._references = references

    async def publish(self, messages: Sequence[Message], *, by_server: bool = False) -> list[Published]:
        """Where each message is, in the order of the messages. If one is refused, nothing changes.

        Only the server itself writes to topics with reserved names.
        """
        if not messages:
            return []
        return await self._submit(self.propose(messages, by_server=by_server))

    async def publish_once(self, numbered: NumberedPublish, messages: Sequence[Message]) -> list[Published]:
        """The same, and stored once however often it is sent. What is sent again is answered as a duplicate."""
        self._publishers.check(numbered)
        if not messages:
            return []
        once = PublishOnce(self._publishers, numbered)
        return await self._submit(self.propose(messages, once=once))

    def propose(
        self, messages: Sequence[Message], *, by_server: bool = False, once: PublishOnce | None = None
    ) -> PublishMessages:
        """The publish of these messages, checked and not yet submitted. Its payloads are to be kept before it is."""
        limits = self._intake.limits
        if len(messages) > limits.publish_records:
            raise LimitExceededError(
                f"the publish has {len(messages)} messages, more than publish_records allows ({limits.publish_records})"
            )
        now = self._intake.clock.now_ms()
        prepared = [self._prepare(message, now, by_server) for message in messages]
        return PublishMessages(self._intake, self._snowflakes, self._payloads, self._references, _route(prepared), once)

    async def _submit(self, publish: PublishMessages) -> list[Published]:
        await publish.keep_payloads()
        return await self._committer.submit(publish)

    def _prepare(self, message: Message, now_ms: int, by_server: bool) -> Prepared:
        intake = self._intake
        live = intake.topics.get(message.topic)
        if live.is_reserved and not by_server:
            raise reserved(live.topic.name)
        check_message(message, now_ms, intake.limits)
        given_id = message_id_of(message, intake.limits)
        if given_id is None:
            name = str(self._snowflakes.next())
            message_id = name.encode()
        else:
            name = given_id.decode(errors="replace")
            message_id = given_id
        _, value, key, given, number, timestamp, _ = message
        headers = [(each, said) for each, said in given if each != MESSAGE_ID_HEADER] if given else []
        headers.append((MESSAGE_ID_HEADER, message_id))
        record = Record(key, value, headers, now_ms if timestamp is None else timestamp)
        size = encoded_size_bound(record)
        if HEADER_BYTES + size > live.max_batch_bytes:
            check_batch_size(len(encode_batch([record])), live, intake.limits)
        dedup = live.topic.settings.dedup
        fingerprint = None
        if dedup == "content":
            fingerprint = fingerprint_of_content(key, value)
        elif dedup == "id" and given_id is not None:
            fingerprint = fingerprint_of_id(given_id)
        partition = None if number is None else live.partition(number)
        return Prepared(live, partition, record, name, fingerprint, size)


def _route(prepared: list[Prepared]) -> list[Routed]:
    """Give each message its partition: the one it asks for, that of its key, or the next in turn."""
    routed = []
    for message in prepared:
        live = message.live
        partition = message.partition
        if partition is None:
            key = message.record.key
            if key is not None:
                number = partition_for_key(key, len(live.partitions))
            else:
                number = live.next_partition % len(live.partitions)
                live.next_partition = number + 1
            partition = live.partitions[number]
        routed.append(Routed(message, partition))
    return routed
