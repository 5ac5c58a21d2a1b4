"""All routes as one plan: a change goes in, the routes that it takes come out, without a shuffle and in the same order.

For each table the columns that its routes look at are parsed once; each route is then a condition in Spark's SQL, written when
the route was made. A route that can't be evaluated for a change gives a row that says so.
"""

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.model.route import Route

MARK = -1
"""The route of a row that carries a mark."""

ROUTED_SCHEMA = (
    "source STRING, op STRING, key BINARY, old_json BINARY, new_json BINARY, cursor BIGINT, committed_ms BIGINT,"
    " mark_from BIGINT, mark_to BIGINT, route INT, failed BOOLEAN, record_key STRING"
)
_PASSED = ("source", "op", "key", "old_json", "new_json", "cursor", "committed_ms", "mark_from", "mark_to")
_IMAGES = ("old", "new")
_READ = "read"


def routed(changes: DataFrame, routes: Iterable[Route]) -> DataFrame:
    """For each change as many rows as it has routes, and the marks."""
    frame = changes
    hits: list[Column] = [F.array(F.when(F.col("mark_to").isNotNull(), _hit(MARK, F.lit(False), F.lit(None))))]
    for table, of_table in _by_table(routes).items():
        column = f"hits_{table}"
        frame = _with_hits(frame, table, of_table, column)
        hits.append(F.col(column))
    taken = F.filter(F.concat(*hits), lambda hit: hit.isNotNull())
    return frame.select(*_PASSED, F.explode(taken).alias("hit")).select(*_PASSED, "hit.*")


def _with_hits(frame: DataFrame, table: int, routes: Sequence[Route], column: str) -> DataFrame:
    """The frame with a list of the hits of one table's routes. Their SQL calls the two rows `old` and `new`."""
    is_of_table = F.col("table") == table
    kept = frame.columns
    if any(_looks_at_rows(route) for route in routes):
        row = routes[0].sql.row
        images = [F.from_json(F.when(is_of_table, F.col(f"{name}_json").cast("string")), row).alias(name) for name in _IMAGES]
        frame = frame.select("*", *images)
    hits = F.when(is_of_table, F.array(*(_route(route) for route in routes))).otherwise(F.array())
    return frame.select(*kept, hits.alias(column))


def _looks_at_rows(route: Route) -> bool:
    return (route.sql.condition, route.sql.failure, route.sql.key) != ("TRUE", "FALSE", None)


def _route(route: Route) -> Column:
    reaches = F.col("op").isin(*route.operations) & F.col("only_route").isNull()
    if route.snapshot:
        reaches |= (F.col("op") == _READ) & (F.col("only_route") == route.id)
        reaches &= F.col("skip_routes").isNull() | ~F.col("skip_routes").contains(f",{route.id},")
    reaches &= F.col("cursor") > route.since
    if route.until is not None:
        reaches &= F.col("cursor") < route.until
    failed = _hit(route.id, F.lit(True), F.lit(None))
    matched = _hit(route.id, F.lit(False), F.lit(None) if route.sql.key is None else F.expr(route.sql.key))
    taken = F.when(F.expr(route.sql.failure), failed).when(F.expr(route.sql.condition), matched)
    return F.when(reaches, taken)


def _hit(route: int, failed: Column, key: Column) -> Column:
    return F.struct(F.lit(route).alias("route"), failed.alias("failed"), key.cast("string").alias("record_key"))


def _by_table(routes: Iterable[Route]) -> dict[int, list[Route]]:
    found: dict[int, list[Route]] = {}
    for route in routes:
        found.setdefault(route.table, []).append(route)
    return found
