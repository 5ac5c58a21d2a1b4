"""The real-time query: Spark's Kafka connector reads the changes of all tables and sends a decision for each of them.

The plan has no Python in it, which Spark's real-time mode does not allow. It reads the topic `_changes.>`, in which a record's
offset is its cursor; parses of each change the cells that routes name; evaluates all routes; and writes to the topic of
decisions (`wire/route_decisions.py`), from which the server makes the records. The connector delivers at least once, and the
server takes each decision once. A query starts from the marks, like those of the micro-batch mode; Spark's checkpoint has no
say in it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from tailrace.api.pipelines import RealtimeView
from tailrace.model.route import Route
from tailrace.model.table import CHANGES_PREFIX
from tailrace.pipeline.errors import SparkError
from tailrace.pipeline.plan import OPERATIONS, CellRef, applies_sql, cells_in, over_cells, row_fields
from tailrace.wire.route_decisions import DECISIONS_TOPIC, query_key

CHANGES = f"{CHANGES_PREFIX}>"
NO_CONNECTOR = (
    "this pipeline was started without Spark's Kafka connector, which real time needs, and goes on in micro-batches. Start it"
    " again with --jars and a folder that has it (docs/reference/pipeline.md says how to fill one), or set its latency to"
    " 'batch'"
)
"""What a router reports that is to route in real time and can't."""

_CONNECTOR_JARS = "spark-sql-kafka-0-10_*.jar"
_CONNECTOR_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
BATCH_DURATION = "60 minutes"
"""How long a batch of Spark lasts, which is not the delay: between two batches changes wait for some tenths of a second."""
_FETCH_WAIT_MS = "500"
_PRODUCER = {
    # Decisions that come while a request is under way share the next one: the server commits and syncs once for each.
    "linger.ms": "1",
    "max.in.flight.requests.per.connection": "1",
    "acks": "all",
    # Whatever fails is sent again by the next query, from the marks.
    "enable.idempotence": "false",
    "retries": "0",
    "max.block.ms": "15000",
    "compression.type": "none",
}


def check_connector(jars: Path | None, packages: str | None) -> None:
    """Raise an error that says what to do if nothing brings Spark's Kafka connector."""
    if packages:
        return
    import pyspark

    folders = [Path(pyspark.__file__).parent / "jars"] if jars is None else [jars]
    if not any(any(folder.glob(_CONNECTOR_JARS)) for folder in folders):
        where = "" if jars is None else f", and {jars} has no {_CONNECTOR_JARS}"
        raise SparkError(
            f"real time needs Spark's Kafka connector{where}. Add --jars with a folder that has it, which Maven fills by the"
            " commands in docs/reference/pipeline.md, or choose --latency batch"
        )


def has_connector(spark: SparkSession) -> bool:
    """Return whether this session has Spark's Kafka connector."""
    try:
        spark.sparkContext._jvm.org.apache.spark.util.Utils.classForName(_CONNECTOR_CLASS, False, False)  # type: ignore[union-attr]
    except Py4JJavaError:
        return False
    return True


def start_query(
    spark: SparkSession, kafka: str, login: Mapping[str, str], view: RealtimeView, epoch: int, checkpoint: Path
) -> StreamingQuery:
    """Start the query from the marks, with the routes as they are now. `login` has options of Kafka's clients."""
    changes = (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in login.items()})
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", CHANGES)
        .option("startingOffsets", json.dumps({CHANGES: {"0": view.start}}))
        .option("includeHeaders", "true")
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
        .load()
    )
    writer = (
        decisions(changes, view.routes, query_key(epoch, view.version))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("topic", DECISIONS_TOPIC)
        # Only the driver writes there, whatever the file system of its cluster is.
        .option("checkpointLocation", checkpoint.absolute().as_uri())
    )
    for name, value in {**_PRODUCER, **login}.items():
        writer = writer.option(f"kafka.{name}", value)
    # The stubs of PySpark lack `realTime`.
    writer = writer.outputMode("update").trigger(realTime=BATCH_DURATION)  # type: ignore[call-overload]
    query: StreamingQuery = writer.start()
    return query


def decisions(changes: DataFrame, routes: Sequence[Route], key: str) -> DataFrame:
    """Return a decision for each change of a table that has routes, in the order of the changes."""
    tables = {route.table_name: route.table for route in routes}
    operations: Mapping[str, int] = {op: number for number, op in enumerate(OPERATIONS)}
    rows = changes.select(
        F.col("offset").alias("cursor"),
        _translated("source_table", tables).alias("table"),
        _translated("op", operations).alias("op"),
        _header("only_route").cast("int").alias("only_route"),
        _header("skip_routes").alias("skip_routes"),
        F.col("value").cast("string").alias("value"),
    ).where("`table` IS NOT NULL")
    images = _images(routes)
    parsed = rows.select("cursor", "table", "op", "only_route", "skip_routes", *(each.column for each in images.values()))
    names = {row: each.name for row, each in images.items()}
    found = [F.expr(_decision_sql(route, names)) for route in routes]
    keys = [(route, F.expr(_key_sql(route, names))) for route in routes if route.sql.key is not None]
    fields = [F.col("cursor").alias("c"), F.array_compact(F.array(*found)).alias("r")]
    if keys:
        pairs = F.create_map(*(part for route, text in keys for part in (F.lit(str(route.id)), text)))
        fields.append(F.map_filter(pairs, lambda _, text: text.isNotNull()).alias("k"))
    return parsed.select(F.lit(key).alias("key"), F.to_json(F.struct(*fields)).alias("value"))


class _Images(NamedTuple):
    """The cells of `old` and `new` that routes name, parsed as one type of rows."""

    name: str
    column: Column


def _images(routes: Sequence[Route]) -> "Mapping[tuple[int, str], _Images]":
    """Return how changes are parsed, by table and type of rows: routes of several dialects may read a column differently."""
    cells: dict[tuple[int, str], set[CellRef]] = {}
    for route in routes:
        named = {cell for text in _texts(route) for cell in cells_in(text)}
        cells.setdefault((route.table, route.sql.row), set()).update(named)
    found = {}
    for number, ((table, row), wanted) in enumerate(cells.items()):
        fields = row_fields(row)
        images = [
            StructField(image, StructType([field for field in fields if CellRef(image, field.name) in wanted]))
            for image in ("old", "new")
        ]
        schema = StructType([image for image in images if image.dataType.fields])  # type: ignore[attr-defined]
        name = f"images_{number}"
        text = F.when(F.col("table") == table, F.col("value"))
        parsed = F.from_json(text, schema) if schema.fields else F.lit(None)
        found[table, row] = _Images(name, parsed.alias(name))
    return found


def _texts(route: Route) -> tuple[str, str, str]:
    return route.sql.condition, route.sql.failure, route.sql.key or ""


def _over_images(sql: str, route: Route, names: Mapping[tuple[int, str], str]) -> str:
    images = names[route.table, route.sql.row]
    return over_cells(sql, lambda cell: f"{images}.{cell.image}.`{cell.column.replace('`', '``')}`")


def _decision_sql(route: Route, names: Mapping[tuple[int, str], str]) -> str:
    """Return the number of the route if it matches, the negative number if it can't be evaluated, and else null."""
    condition, failure = (_over_images(text, route, names) for text in (route.sql.condition, route.sql.failure))
    return f"CASE WHEN {applies_sql(route)} THEN CASE WHEN {failure} THEN {-route.id} WHEN {condition} THEN {route.id} END END"


def _key_sql(route: Route, names: Mapping[tuple[int, str], str]) -> str:
    condition, key = (_over_images(text, route, names) for text in (route.sql.condition, route.sql.key or "NULL"))
    return f"CASE WHEN {applies_sql(route)} AND ({condition}) THEN {key} END"


def _header(name: str) -> Column:
    return F.get(F.filter("headers", lambda header: header.key == name), F.lit(0)).value.cast("string")


def _translated(header: str, values: Mapping[str, int]) -> Column:
    """Return the number of a header's value; null for others."""
    found: Column | None = None
    text = _header(header)
    for value, number in values.items():
        found = F.when(text == value, number) if found is None else found.when(text == value, number)
    return F.lit(None).cast("int") if found is None else found
