"""Writes what it reads in capitals: `BOOTSTRAP SOURCE TARGET (aiokafka|confluent)`. Stops at SIGTERM."""

import asyncio
import sys

from faststream import AckPolicy, FastStream


def main() -> None:
    bootstrap, source, target, client = sys.argv[1:]
    if client == "aiokafka":
        from faststream.kafka import KafkaBroker
    else:
        from faststream.confluent import KafkaBroker
    broker = KafkaBroker(bootstrap)

    @broker.subscriber(
        source,
        group_id=f"faststream-{client}",
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )
    @broker.publisher(target)
    async def capitals(value: str) -> str:
        return value.upper()

    asyncio.run(FastStream(broker).run())


if __name__ == "__main__":
    main()
