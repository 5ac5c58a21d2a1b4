"""Routes in a real Spark: the text that a route keeps means there what the dry run shows.

Spark fails on some values that PostgreSQL takes, such as numbers that are written otherwise than in digits; it never answers
something else.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.model.errors import InvalidRequestError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.route import RouteSql
from tailrace.sql.routes.check import CheckedRoute
from tailrace.sql.routes.compile import compile_for_spark
from tailrace.sql.routes.dry_run import dry_run
from tailrace.wire.routing import partition_key
from tests.support.route_cases import TABLE, Images, Writer, checked, encoded, event, hard_rows, random_row

CONDITIONS = 30
KEYS = (
    "id",
    "small",
    "name",
    "flag",
    "d",
    "ts",
    "u",
    "amount",
    "rate",
    "CAST(name AS INTEGER)",
    "lower(name)",
    "id % 10",
    "date_trunc('hour', ts)",
    "extract(year FROM d)",
)
AT_ONCE = 10
"""Routes in one query of Spark."""
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "user": "must not be put in for ${user}",
}


@contextmanager
def settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """For others the session is as before."""
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def changes_of(spark: SparkSession, row: str, images: Sequence[Images]) -> DataFrame:
    events = [
        '{"old":%s,"new":%s}' % tuple((encoded(image) or b"null").decode() for image in pair)  # noqa: UP031  bytes of JSON
        for pair in images
    ]
    raw = spark.createDataFrame(list(enumerate(events)), "number INT, event STRING").coalesce(1)
    parsed = F.from_json("event", f"old {row}, new {row}")
    return raw.select("number", parsed.alias("change")).select("number", "change.old", "change.new").cache()


def answers_of(changes: DataFrame, routes: Sequence[RouteSql]) -> list[list[tuple[object, ...]]]:
    """For each route and each change: whether it matches, whether it fails, and the key."""
    found: list[list[tuple[object, ...]]] = []
    for start in range(0, len(routes), AT_ONCE):
        part = routes[start : start + AT_ONCE]
        columns = [column for route in part for column in columns_of(route)]
        rows = [tuple(row) for row in changes.orderBy("number").select(*columns).collect()]
        found += [[row[at : at + 3] for row in rows] for at in range(0, len(columns), 3)]
    return found


def columns_of(route: RouteSql) -> list[Column]:
    return [F.expr(text or "CAST(NULL AS STRING)") for text in (route.condition, route.failure, route.key)]


def random_routes(count: int) -> list[tuple[str, CheckedRoute]]:
    found: list[tuple[str, CheckedRoute]] = []
    seed = 0
    while len(found) < count:
        seed += 1
        text = Writer(Random(seed), ("OLD.", "NEW.", "")).condition()
        try:
            found.append((text, checked(text, operations=("update",))))
        except InvalidRequestError:
            continue
    return found


def test_spark_answers_what_the_route_means_with_and_without_ansi_mode(spark: SparkSession) -> None:
    routes = random_routes(CONDITIONS) + [(key, checked("flag", [key], ("update",))) for key in KEYS]
    random = Random(1)
    images = [Images(random_row(random), row) for row in hard_rows()]
    compiled = [compile_for_spark(route, TABLE, DEFAULT_LIMITS) for _, route in routes]
    changes = changes_of(spark, compiled[0].row, images)
    for ansi in ("false", "true"):
        with settings(spark, {**SETTINGS, "spark.sql.ansi.enabled": ansi}):
            answered = answers_of(changes, compiled)
        for (text, route), answers in zip(routes, answered, strict=True):
            for pair, (matches, failed, key) in zip(images, answers, strict=True):
                (meant,) = dry_run(route, TABLE, [event(pair, "update")], DEFAULT_LIMITS)
                assert (matches, failed) in ((meant.matches, meant.failed), (None, True)), (text, pair)
                if matches and route.keys:
                    assert key == partition_key(meant.key_values).decode(), (text, pair)
