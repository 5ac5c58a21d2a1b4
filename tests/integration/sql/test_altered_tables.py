"""Tables that are altered and truncated, on a real server: every surface shows the new columns, and the folder is sound."""

import io
from pathlib import Path

import httpx
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from tailrace.client import Client
from tailrace.log.fsck import run_fsck
from tests.support.api import Api
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SELECT = "SELECT * FROM shop.orders ORDER BY 1"


def test_every_surface_shows_the_new_columns(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ServerProcess(folder) as server, Client(server.url) as client:
        api = Api(server.url)
        api.sql("CREATE TABLE shop.orders (id INT PRIMARY KEY, amount INT, old TEXT)")
        api.sql("INSERT INTO shop.orders VALUES (1, 10, 'x')")
        assert api.sql(SELECT) == [[1, 10, "x"]]
        api.sql("ALTER TABLE shop.orders DROP COLUMN old, ADD COLUMN note TEXT DEFAULT 'n', ALTER amount TYPE DECIMAL(12, 2)")
        api.sql("ALTER TABLE shop.orders RENAME amount TO total")
        assert api.sql(SELECT) == [[1, "10.00", "n"]]
        assert [row[:2] for row in api.sql("DESCRIBE TABLE shop.orders")] == [
            ["id", "integer"],
            ["total", "decimal(12, 2)"],
            ["note", "text"],
        ]
        (table,) = api.ask("/api/tables")["tables"]
        assert table["schema_version"] == 3
        assert [column["name"] for column in table["columns"]] == ["id", "total", "note"]
        assert api.sql("SELECT name, schema_version FROM system.tables") == [["shop.orders", 3]]
        client.copy_into("shop.orders", io.BytesIO(b"id,total,note\n2,2.5,copied\n"), format="csv", header=True)
        out = io.BytesIO()
        client.copy_out("shop.orders", out, format="csv", header=True)
        assert out.getvalue() == b"id,total,note\n1,10.00,n\n2,2.50,copied\n"
        assert _arrow(server, SELECT).column_names == ["id", "total", "note"]
        assert _headers(server, "_changes.shop.orders") == [None, b"3"]
        texts = (
            "INSERT INTO shop.orders VALUES (3, 3, 'c')",
            "TRUNCATE shop.orders",
            "INSERT INTO shop.orders VALUES (4, 4, 'd')",
        )
        api.ask("/api/sql", {"sql": f"BEGIN; {'; '.join(texts)}; COMMIT"})
        assert api.sql(SELECT) == [[4, "4.00", "d"]]
    report = run_fsck(folder)
    assert not report.findings
    (folder / "tables.db").unlink()
    with ServerProcess(folder) as server:
        assert Api(server.url).sql(SELECT) == [[4, "4.00", "d"]]


def _arrow(server: ServerProcess, text: str) -> pa.Table:
    headers = {"accept": "application/vnd.apache.arrow.stream"}
    answer = httpx.post(f"{server.url}/api/sql", json={"sql": text}, headers=headers, timeout=PATIENCE_SECONDS)
    answer.raise_for_status()
    return pa.ipc.open_stream(answer.content).read_all()


def _headers(server: ServerProcess, topic: str) -> list[bytes | None]:
    """The schema versions of two records, as a Kafka client sees them."""
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "judge", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = consumer.consume(2, PATIENCE_SECONDS)
        return [dict(message.headers() or ()).get("schema_version") for message in found]
    finally:
        consumer.close()
