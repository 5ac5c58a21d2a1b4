"""Counts words in a table, whose changelog is a compacted topic, and writes each count: `BOOTSTRAP SOURCE TARGET FOLDER`."""

import sys

import faust

PARTITIONS = 4


def main() -> None:
    bootstrap, source, target, folder = sys.argv[1:]
    app = faust.App(
        "words",
        broker=f"kafka://{bootstrap}",
        store="memory://",
        datadir=folder,
        topic_partitions=PARTITIONS,
        topic_replication_factor=1,
        web_enabled=False,
        broker_session_timeout=6.0,
        broker_heartbeat_interval=1.0,
        broker_commit_interval=0.2,
        consumer_auto_offset_reset="earliest",
        value_serializer="raw",
        key_serializer="raw",
    )
    words = app.topic(source, key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
    counts = app.topic(target, key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
    table = app.Table("counts", default=int, partitions=PARTITIONS, key_type=str, value_type=int)

    @app.agent(words)
    async def count(stream: faust.Stream[bytes]) -> None:
        async for event in stream.events():
            word = event.key.decode()
            table[word] += 1
            await counts.send(key=event.key, value=str(table[word]).encode())

    faust.Worker(app, loglevel="warning").execute_from_commandline()


if __name__ == "__main__":
    main()
