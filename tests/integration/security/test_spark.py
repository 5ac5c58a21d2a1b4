"""Spark's `format("tailrace")` and the router at a server with TLS that demands authentication: who logs in, and who may not.

Credentials come from options or the environment. No test waits for a pipeline that tries again: what is refused is refused at
once.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.client.credentials import CredentialSource
from tailrace.model.pipeline import PipelineReport
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.router import Router, RouterSettings
from tailrace.pipeline.session import spark_session
from tailrace.pipeline.table_changes import TableChanges
from tests.integration.security.secured import ADMIN, PASSWORD, SecuredServer, secured_server
from tests.support.certificates import Authority

pytestmark = pytest.mark.timeout(400)

USER_VARIABLE, PASSWORD_VARIABLE, FILE_VARIABLE = "TAILRACE_USER", "TAILRACE_PASSWORD", "TAILRACE_CA_FILE"
OTHER_VARIABLE = "COMPAT_PASSWORD"
"""Tasks run in processes that Java starts, which have the environment with which Java was started."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredServer]:
    shown = authority.server()
    toml = (
        f'[security]\nauthentication = "required"\ntls_certificate = "{shown.certificate}"\ntls_key = "{shown.key}"\n'
        f'client_certificates = "accepted"\nclient_ca = "{authority.file}"\n'
    )
    with secured_server(tmp_path_factory.mktemp("server") / "data", toml, verify=str(authority.file)) as running:
        running.sql("CREATE TOPIC acme.numbers")
        yield running


@pytest.fixture(scope="module")
def user(server: SecuredServer) -> str:
    return server.create_user("CONSUME, PUBLISH ON TOPIC acme.numbers", "CONSUME ON GROUP PREFIX 'job-'")


@pytest.fixture(scope="module")
def spark(user: str, authority: Authority) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (
            (USER_VARIABLE, user),
            (PASSWORD_VARIABLE, PASSWORD),
            (FILE_VARIABLE, str(authority.file)),
            (OTHER_VARIABLE, PASSWORD),
        ):
            environment.setenv(name, value)
        session = spark_session("local[2]", name="secured")
        yield session
        session.stop()


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("tailrace").options(**options).option("topic", "acme.numbers").mode("append").save()


def read(spark: SparkSession, options: dict[str, str]) -> list[int]:
    loaded = spark.read.format("tailrace").options(**options).option("subscribe", "acme.numbers").load()
    return sorted(int(row.value) for row in loaded.select("value").collect())


@pytest.fixture
def options(server: SecuredServer, authority: Authority) -> dict[str, str]:
    server.sql("CLEAR TOPIC acme.numbers")
    return {"server": server.url, "caFile": str(authority.file)}


@pytest.mark.parametrize("way", ["environment", "passwordFile", "passwordEnv", "tokenFile", "certificateFile"])
def test_a_batch_is_written_and_read_with_credentials(
    spark: SparkSession,
    server: SecuredServer,
    user: str,
    authority: Authority,
    options: dict[str, str],
    tmp_path: Path,
    way: str,
) -> None:
    secret = tmp_path / "secret"
    if way == "environment":
        options = {"server": server.url}
    elif way == "passwordFile":
        secret.write_text(f"{PASSWORD}\n")
        options |= {"user": user, "passwordFile": str(secret)}
    elif way == "passwordEnv":
        options |= {"user": user, "passwordEnv": OTHER_VARIABLE}
    elif way == "tokenFile":
        secret.write_text(server.create_token(user)[1])
        options |= {"tokenFile": str(secret)}
    else:
        shown = authority.client(user)
        options |= {"certificateFile": str(shown.certificate), "keyFile": str(shown.key)}
    write(spark.range(50).selectExpr("cast(id AS string) AS value"), options)
    assert read(spark, options) == list(range(50))


def test_wrong_passwords_and_missing_rights_are_named_and_no_secret_is(
    spark: SparkSession, server: SecuredServer, options: dict[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("planted-and-wrong")
    with pytest.raises(PySparkException, match="authentication failed") as refused:
        read(spark, {**options, "user": "somebody", "passwordFile": str(secret)})
    assert "planted" not in str(refused.value)
    secret.write_text(PASSWORD)
    stranger = {**options, "user": server.create_user(), "passwordFile": str(secret)}
    with pytest.raises(PySparkException, match=r"may not (describe|consume) topic 'acme\.numbers'"):
        read(spark, stranger)
    with pytest.raises(Py4JJavaError, match=r"may not (describe|publish) topic 'acme\.numbers'"):
        write(spark.range(1).selectExpr("cast(id AS string) AS value"), stranger)


def test_changes_are_routed_by_a_router_that_logs_in(
    spark: SparkSession, server: SecuredServer, authority: Authority, tmp_path: Path
) -> None:
    server.sql("CREATE TABLE acme.bills (id BIGINT PRIMARY KEY)")
    server.sql("CREATE TOPIC acme.new_bills")
    server.sql("ALTER TOPIC acme.new_bills ADD SOURCE acme.bills ON INSERT")
    server.sql("INSERT INTO acme.bills (id) VALUES (1), (2), (3)")
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    login = CredentialSource(user=ADMIN, password_file=str(secret))
    settings = RouterSettings(ServerAddress(server.url, str(authority.file), login))
    reports: list[PipelineReport] = []
    Router(spark, TableChanges(settings.server, 1_000, 60.0), settings, reports.append).run(once=True)
    assert reports[-1].rows == 3
    assert server.sql("SELECT count(*) FROM acme.new_bills") == [[3]]
