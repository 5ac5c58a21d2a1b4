"""Debezium's connector for PostgreSQL in Kafka Connect on a real server: the topic of a table leads back to its rows."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from bench.peers.connect import ConnectPeer
from bench.peers.debezium import connector_settings
from tailrace.model.address import Address
from tests.compat.tools import topics
from tests.compat.tools.programs import DEBEZIUM_CONNECTOR, DEBEZIUM_JARS, tool
from tests.compat.tools.test_connect import worker_settings
from tests.support.eventually import eventually
from tests.support.postgres_server import APP, DATABASE, PASSWORDS, PostgresServer, sql
from tests.support.server import ServerProcess

TOPIC = "shop.public.orders"
IDS = 50
ROUND = 400
CREATED = {"partitions": "3", "replication.factor": "1", "min.cleanable.dirty.ratio": "0.01"}


def settings(postgres: PostgresServer, cleanup: str) -> dict[str, str]:
    given = connector_settings(Address("127.0.0.1", postgres.port), "debezium", "orders_of_the_shop", "shop", "initial")
    created = {f"topic.creation.default.{name}": value for name, value in {**CREATED, "cleanup.policy": cleanup}.items()}
    database = {"database.user": APP, "database.password": PASSWORDS[APP], "database.dbname": DATABASE}
    return {**given, **created, **database, "exactly.once.support": "required", "tombstones.on.delete": "true"}


def change(connection: "psycopg.Connection[Any]", random: Random, count: int) -> Counter[str]:
    """Make changes, some of them rolled back, and return how many of each kind were committed."""
    made: Counter[str] = Counter()
    there = {id for (id,) in connection.execute("SELECT id FROM orders")}
    for _ in range(count):
        id = random.randrange(IDS)
        body = f"body {random.random()}"
        with connection.transaction():
            if id not in there:
                connection.execute("INSERT INTO orders VALUES (%s, %s)", (id, body))
                kind = "c"
            elif random.random() < 0.2:
                connection.execute("DELETE FROM orders WHERE id = %s", (id,))
                kind = "d"
            else:
                connection.execute("UPDATE orders SET body = %s WHERE id = %s", (body, id))
                kind = "u"
        made[kind] += 1
        there ^= {id} if kind in "cd" else set()
        with connection.transaction(force_rollback=True):
            connection.execute("UPDATE orders SET body = 'never committed'")
    return made


@tool(
    DEBEZIUM_CONNECTOR,
    "In Connect on Tailrace, exactly once: a snapshot, then every change once, over kills of Connect and of the server; the "
    "topic, compacted or not, leads back to the rows of the table",
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_a_table_comes_back_from_its_topic(own_server: ServerProcess, tmp_path: Path, cleanup: str) -> None:
    folder = tmp_path / "connect"
    folder.mkdir()
    worker = ConnectPeer("ConnectDistributed", [DEBEZIUM_JARS], folder, worker_settings(own_server.kafka))
    random = Random(7)

    def events() -> Counter[str]:
        if TOPIC not in topics.names(own_server.kafka):
            return Counter()
        records = topics.read(own_server.kafka, TOPIC)
        return Counter(json.loads(record.value)["op"] for record in records if record.value is not None)

    with PostgresServer(tmp_path / "postgres") as postgres, postgres.connect() as connection:
        connection.execute("CREATE TABLE orders (id INT PRIMARY KEY, body TEXT)")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute("CREATE PUBLICATION orders_of_the_shop FOR TABLE orders")
        connection.execute(sql(f"INSERT INTO orders SELECT n, 'first' FROM generate_series(1, {IDS // 2}) AS n"))
        worker.start()
        try:
            worker.create("shop", settings(postgres, cleanup))
            eventually(lambda: events().total() == IDS // 2, "the snapshot")
            made: Counter[str] = Counter()
            for victim in ("worker", "server", "both", "nobody"):
                made += change(connection, random, ROUND)
                if victim in ("worker", "both"):
                    worker.stop()
                if victim in ("server", "both"):
                    own_server.kill()
                    own_server.start()
                if victim in ("worker", "both"):
                    made += change(connection, random, ROUND)
                    worker.start()
            rows = {str(id): body for id, body in connection.execute("SELECT id, body FROM orders")}

            def found() -> dict[str, str]:
                last = topics.latest(topics.read(own_server.kafka, TOPIC))
                return {
                    str(json.loads(key or "")["id"]): json.loads(value)["after"]["body"]
                    for key, value in last.items()
                    if value is not None
                }

            eventually(lambda: found() == rows, "the rows of the table", 100)
            worker.check()
        finally:
            worker.stop()
    if cleanup == "delete":
        assert events() == made + Counter(r=IDS // 2)
    else:
        eventually(lambda: topics.compacted_records(own_server.url) > 0, "a compaction")
