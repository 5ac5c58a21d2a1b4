"""Routes wait while their topics are cut over, and go on behind it without a lost or doubled message."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.pipeline.chat import all_routed, create_chat, write
from tests.integration.pipeline.conftest import Running
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.routed_tables import RoutedTables
from tests.support.server import ServerProcess

FENCE = "/api/shadows/prod/fence"


@pytest.fixture
def chat(tables: RoutedTables) -> RoutedTables:
    create_chat(tables)
    tables.api.sql("CREATE SHADOW prod TO KAFKA 'kafka.example:9092' WITH (topics = 'all, batches', copied_by = 'command')")
    return tables


def fence(api: Api, number: int | None = None) -> int:
    """Fence the topics, or keep the fence."""
    asked = {"owner": "a test", "producers": "forward", "fence": number}
    return int(api.ask(FENCE, asked)["fence"])


@pytest.mark.long
def test_the_router_waits_for_the_end_of_a_fence_whether_that_is_short_or_long(chat: RoutedTables, routing: Running) -> None:
    with routing(most_rows=20, retry_seconds=1.0) as reports:
        write(chat, 0)
        eventually(lambda: all_routed(chat), "the first changes routed")
        number = fence(chat.api)
        before = (chat.count("all"), chat.count("keys"))
        write(chat, 100)

        def has_failed() -> bool:
            fence(chat.api, number)
            return any("'all' takes no records while it is cut over" in (report.last_error or "") for report in reports)

        # Longer than the driver asks again for one batch.
        eventually(has_failed, "a report that says why nothing is routed")
        assert (chat.count("all"), chat.count("keys")) == before
        chat.api.ask("/api/shadows/prod/cut-over", {"fence": number, "producers": "forward"})
        write(chat, 200)
        eventually(lambda: all_routed(chat), "all changes routed")
    chat.check()


def test_a_batch_of_a_query_waits_for_the_end_of_a_fence(
    chat: RoutedTables, spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    chat.api.create_topic("batches")
    number = fence(chat.api)
    rows = spark.range(1000).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    writing = rows.write.format("tailrace").option("server", server.url).option("topic", "batches").mode("append")
    with pytest.raises(Exception, match="'batches' takes no records while it is cut over"):
        writing.option("patienceSeconds", "1").save()
    assert chat.count("batches") == 0
    chat.api.ask("/api/shadows/prod/unfence", {"fence": number})
    writing.save()
    assert chat.count("batches") == 1000
