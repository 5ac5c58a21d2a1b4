"""Counts the records of each key, exactly once, with a changelog topic: `BOOTSTRAP SOURCE TARGET FOLDER`."""

import sys

from quixstreams import Application, State
from quixstreams.models import TopicConfig


def main() -> None:
    bootstrap, source, target, folder = sys.argv[1:]
    app = Application(
        broker_address=bootstrap,
        consumer_group="quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        state_dir=folder,
        consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
        producer_extra_config={"transaction.timeout.ms": 10_000},
    )
    config = TopicConfig(num_partitions=4, replication_factor=1)
    words = app.topic(source, key_deserializer="str", value_deserializer="str", config=config)
    counts = app.topic(target, key_serializer="str", value_serializer="str", config=config)

    def count(_: str, state: State) -> str:
        total = state.get("total", 0) + 1
        state.set("total", total)
        return str(total)

    app.dataframe(words).apply(count, stateful=True).to_topic(counts)
    app.run()


if __name__ == "__main__":
    main()
