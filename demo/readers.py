"""Three ways to read the same topics: a Kafka client, a consumer group over HTTP, and SQL."""

from collections import Counter

from confluent_kafka import Consumer, TopicPartition

from demo.server import Api

_PAGE = 200


def read_by_kafka(address: str, topic: str, partitions: int) -> Counter[str]:
    """How often each message is there, by its id, as any Kafka client sees it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False})
    found: Counter[str] = Counter()
    try:
        for number in range(partitions):
            partition = TopicPartition(topic, number, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=30)
            consumer.assign([partition])
            left = end
            while left:
                messages = consumer.consume(min(left, _PAGE), 30)
                found.update(dict(message.headers())["message_id"].decode() for message in messages)
                left -= len(messages)
    finally:
        consumer.close()
    return found


class HttpGroup:
    """A consumer group over HTTP, which acknowledges what it has read and goes on after it."""

    def __init__(self, topic: str, group: str) -> None:
        self._topic = topic
        self._group = group
        self.read: Counter[str] = Counter()
        self.resumed_at: list[int] = []

    def read_up(self, api: Api, most: int) -> int:
        """Read and acknowledge until there is nothing more, or `most` messages; how many came."""
        count = 0
        question = {"topic": self._topic, "group_id": self._group, "start": "earliest", "partition_id": 0}
        while count < most:
            answer = api.post("/api/topics/consume", {**question, "limit": min(_PAGE, most - count)})
            messages = answer["messages"]
            if not messages:
                break
            if not count:
                self.resumed_at.append(messages[0]["offset"])
            self.read.update(message["message_id"] for message in messages)
            api.post(
                "/api/topics/ack",
                {"topic": self._topic, "group_id": self._group, "partition_id": 0, "upto_offset": messages[-1]["offset"]},
            )
            count += len(messages)
        return count
