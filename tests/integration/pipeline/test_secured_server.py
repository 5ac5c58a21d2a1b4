"""Spark at a server that demands authentication: readers, writers and the router log in, and Spark sees no secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.client.credentials import CredentialSource
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.router import Router, RouterSettings
from tailrace.pipeline.table_changes import TableChanges
from tests.integration.security.secured import PASSWORD, SecuredServer, secured_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecuredServer]:
    with secured_server(tmp_path / "data") as running:
        running.sql("CREATE TOPIC acme.orders")
        yield running


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return str(file)


def rows(spark: SparkSession, **options: str) -> Any:
    return spark.read.format("tailrace").options(**options).load()


def write(spark: SparkSession, **options: str) -> None:
    frame = spark.createDataFrame([("from spark",)], ["value"])
    frame.write.format("tailrace").options(**options).mode("append").save()


def test_a_reader_and_a_writer_log_in_and_may_do_what_was_granted(
    spark: SparkSession, server: SecuredServer, password_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    user = server.create_user("CONSUME, PUBLISH ON TOPIC acme.orders", "CONSUME ON GROUP PREFIX 'job-'")
    stranger = server.create_user()
    topic = {"server": server.url, "topic": "acme.orders"}
    reading = {"server": server.url, "subscribe": "acme.orders"}
    login = {"user": user, "passwordFile": password_file}
    write(spark, **topic, **login)
    found = rows(spark, **reading, **login)
    assert [bytes(row.value) for row in found.collect()] == [b"from spark"]
    plan = found._jdf.queryExecution().toString()
    assert PASSWORD not in plan
    foreign = {"user": stranger, "passwordFile": password_file}
    for refused in (
        lambda: write(spark, **topic, **foreign),
        lambda: rows(spark, **reading, **foreign).collect(),
    ):
        with pytest.raises(Exception, match="may not") as error:
            refused()
        assert PASSWORD not in str(error.value)
    with pytest.raises(Exception, match="authentication"):
        rows(spark, **reading).collect()
    shown = capfd.readouterr()
    assert PASSWORD not in shown.out + shown.err


def test_the_router_logs_in_and_needs_its_grants(spark: SparkSession, server: SecuredServer, password_file: str) -> None:
    server.sql("CREATE TABLE acme.bills (id INT PRIMARY KEY)")
    server.sql("ALTER TOPIC acme.orders ADD SOURCE acme.bills ON INSERT")
    server.sql("INSERT INTO acme.bills VALUES (1), (2)")
    user = server.create_user()
    address = ServerAddress(server.url, login=CredentialSource(user=user, password_file=password_file))
    with pytest.raises(Exception, match="may not cluster action"):
        route_once(spark, address)
    server.sql(f"GRANT ALL ON SERVER TO {user}")
    server.sql(f"GRANT SELECT ON ALL TABLES TO {user}")
    server.sql(f"GRANT DESCRIBE ON ALL TOPICS TO {user}")
    route_once(spark, address)
    assert server.sql('SELECT count(*) FROM "acme.orders"') == [[2]]


def route_once(spark: SparkSession, address: ServerAddress) -> None:
    settings = RouterSettings(address)
    router = Router(spark, TableChanges(address, 1_000, settings.retry_seconds), settings, lambda _: None)
    router.run(once=True)
