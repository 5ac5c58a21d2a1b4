"""Spark and the pipeline behind TLS: what is trusted, and what is said where it is not."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.model.errors import TlsError
from tailrace.model.pipeline import PipelineReport
from tailrace.pipeline.connection import ServerAddress, check_server
from tailrace.pipeline.router import Router, RouterSettings
from tailrace.pipeline.table_changes import TableChanges
from tests.support.api import Api
from tests.support.server import ServerProcess
from tests.support.tls import TlsFront, make_certificate


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path)


@pytest.fixture
def front(server: ServerProcess, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsFront]:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with TlsFront(server.url, certificate) as running:
        yield running


def test_spark_writes_and_reads_over_tls(spark: SparkSession, front: TlsFront, certificate: Path, api: Api) -> None:
    api.create_topic("numbers")
    secure = {"server": front.url, "caFile": str(certificate)}
    frame = spark.range(100).selectExpr("cast(id AS string) AS value")
    frame.write.format("tailrace").options(**secure).option("topic", "numbers").mode("append").save()
    read = spark.read.format("tailrace").options(**secure).option("subscribe", "numbers").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))


def test_changes_are_routed_over_tls(spark: SparkSession, front: TlsFront, certificate: Path, api: Api) -> None:
    api.sql("CREATE TABLE shop.orders (id BIGINT PRIMARY KEY)")
    api.create_topic("new_orders")
    api.sql("ALTER TOPIC new_orders ADD SOURCE shop.orders ON INSERT")
    api.sql("INSERT INTO shop.orders (id) VALUES (1), (2), (3)")
    settings = RouterSettings(ServerAddress(front.url, str(certificate)))
    reports: list[PipelineReport] = []
    Router(spark, TableChanges(settings.server, 1_000, 60.0), settings, reports.append).run(once=True)
    assert reports[-1].rows == 3
    assert api.sql("SELECT count(*) FROM new_orders") == [[3]]


def test_a_server_with_an_untrusted_certificate_is_rejected_at_once(front: TlsFront) -> None:
    started = time.monotonic()
    with pytest.raises(TlsError, match=r"not trusted: self-signed certificate.*ca_file"):
        check_server(ServerAddress(front.url))
    assert time.monotonic() - started < 5, "it would try again for ten seconds"


def test_a_server_without_tls_is_another_error_than_a_missing_one(server: ServerProcess) -> None:
    with pytest.raises(TlsError, match=r"TLS failed with https://.*http://\?"):
        check_server(ServerAddress(server.url.replace("http", "https")))
