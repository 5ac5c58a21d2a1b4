"""Spark at a server with TLS that demands authentication: readers, writers and the router log in, and Spark shows no secret."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.client.credentials import CredentialSource
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.router import Router, RouterSettings
from tailrace.pipeline.table_changes import TableChanges
from tests.integration.security.secured import PASSWORD, SecuredServer, tls_server
from tests.support.certificates import Authority

CHILD = Path(__file__).with_name("secured_child.py")
CHILD_SECONDS = 390


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredServer]:
    with tls_server(tmp_path_factory.mktemp("server") / "data", authority) as server:
        server.sql("CREATE TOPIC acme.orders")
        yield server


@pytest.fixture
def server(running: SecuredServer) -> SecuredServer:
    running.sql("CLEAR TOPIC acme.orders")
    return running


@pytest.fixture(scope="module")
def user(running: SecuredServer) -> str:
    return running.create_user("CONSUME, PUBLISH ON TOPIC acme.orders")


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return str(file)


@pytest.fixture
def address(server: SecuredServer, authority: Authority) -> dict[str, str]:
    return {"server": server.url, "caFile": str(authority.file)}


def rows(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("tailrace").options(**options).option("subscribe", "acme.orders").load()


def write(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.createDataFrame([("from spark",)], ["value"])
    frame.write.format("tailrace").options(**options).option("topic", "acme.orders").mode("append").save()


@pytest.mark.parametrize("way", ["passwordFile", "tokenFile", "certificateFile"])
def test_a_reader_and_a_writer_log_in_by_options(
    spark: SparkSession,
    server: SecuredServer,
    user: str,
    authority: Authority,
    address: dict[str, str],
    password_file: str,
    way: str,
) -> None:
    if way == "passwordFile":
        options = {**address, "user": user, "passwordFile": password_file}
    elif way == "tokenFile":
        Path(password_file).write_text(server.create_token(user)[1])
        options = {**address, "tokenFile": password_file}
    else:
        shown = authority.client(user)
        options = {**address, "certificateFile": str(shown.certificate), "keyFile": str(shown.key)}
    write(spark, options)
    found = rows(spark, options)
    assert [bytes(row.value) for row in found.collect()] == [b"from spark"]
    assert PASSWORD not in found._jdf.queryExecution().toString()


@pytest.mark.long
def test_a_reader_and_a_writer_log_in_by_their_environment(
    server: SecuredServer, user: str, authority: Authority, address: dict[str, str]
) -> None:
    environment = {
        "TAILRACE_USER": user,
        "TAILRACE_PASSWORD": PASSWORD,
        "TAILRACE_CA_FILE": str(authority.file),
        "ORDERS_PASSWORD": PASSWORD,
    }
    tried = [{"server": server.url}, {**address, "user": user, "passwordEnv": "ORDERS_PASSWORD"}]
    # A process of its own: Java keeps the environment of the first session of its process.
    command = [sys.executable, str(CHILD), json.dumps(tried)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CHILD_SECONDS, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert done.stdout.strip() == "[b'from spark', b'from spark']"


def test_a_streaming_query_needs_no_grant_but_on_its_topics(
    spark: SparkSession, server: SecuredServer, user: str, address: dict[str, str], password_file: str, tmp_path: Path
) -> None:
    options = {**address, "user": user, "passwordFile": password_file}
    source = tmp_path / "source"
    spark.range(3).selectExpr("cast(id AS string) AS value").write.parquet(str(source))
    stream = spark.readStream.schema("value string").parquet(str(source))
    writing = stream.writeStream.format("tailrace").options(**options).option("topic", "acme.orders")
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(bytes(row.value) for row in rows(spark, options).collect()) == [b"0", b"1", b"2"]


def test_who_may_not_is_told_so_and_no_secret_is_shown(
    spark: SparkSession,
    server: SecuredServer,
    address: dict[str, str],
    password_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stranger = {**address, "user": server.create_user(), "passwordFile": password_file}
    for refused in (lambda: write(spark, stranger), lambda: rows(spark, stranger).collect()):
        with pytest.raises(Exception, match="may not") as error:
            refused()
        assert PASSWORD not in str(error.value)
    with pytest.raises(Exception, match="authentication"):
        rows(spark, address).collect()
    Path(password_file).write_text("planted-and-wrong")
    with pytest.raises(Exception, match="authentication failed") as error:
        rows(spark, stranger).collect()
    assert "planted" not in str(error.value)
    shown = capfd.readouterr()
    assert PASSWORD not in shown.out + shown.err


def test_the_router_logs_in_and_needs_its_grants(
    spark: SparkSession, server: SecuredServer, authority: Authority, password_file: str
) -> None:
    server.sql("CREATE TABLE acme.bills (id INT PRIMARY KEY)")
    server.sql("ALTER TOPIC acme.orders ADD SOURCE acme.bills ON INSERT")
    server.sql("INSERT INTO acme.bills VALUES (1), (2)")
    user = server.create_user()
    login = CredentialSource(user=user, password_file=password_file)
    address = ServerAddress(server.url, str(authority.file), login)
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
