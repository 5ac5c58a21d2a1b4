"""All routes as one plan: a change goes in, the routes that it takes come out, without a shuffle and in the same order.

For each table the columns that its routes look at are parsed once; each route is then a condition in Spark's SQL, written when
the route was made. A route that can't be evaluated for a change gives a row that says so.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.model.route import Route

MARK = -1
"""The route of a row that carries a mark."""

_PASSED = ("source", "op", "key", "old_json", "new_json", "cursor", "committed_ms", "mark_from", "mark_to")
_NEEDED = (*_PASSED, "table", "only_route", "skip_routes")
_IMAGES = ("old", "new")
_READ = "read"


class RoutingPlan:
    """The plan of some routes, made once and applied to every batch: to write it down takes longer than a small batch does."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        marks = F.array(F.when(F.col("mark_to").isNotNull(), _hit(MARK, F.lit(False), F.lit(None))))
        self._selects: list[Sequence[Column]] = []
        hits = [marks]
        kept = [F.col(name) for name in _NEEDED]
        for table, of_table in _by_table(routes).items():
            column = f"hits_{table}"
            if any(_looks_at_rows(route) for route in of_table):
                row = looked_at(cast(StructType, StructType.fromDDL(of_table[0].sql.row)), of_table)
                self._selects.append([*kept, *_images(table, row)])
            self._selects.append([*kept, _hits(table, of_table).alias(column)])
            kept.append(F.col(column))
            hits.append(F.col(column))
        taken = F.filter(F.concat(*hits), lambda hit: hit.isNotNull())
        passed = [F.col(name) for name in _PASSED]
        self._selects += [[*passed, F.explode(taken).alias("hit")], [*passed, F.col("hit.*")]]

    def apply(self, changes: DataFrame) -> DataFrame:
        """For each change as many rows as it has routes, and the marks."""
        for columns in self._selects:
            changes = changes.select(*columns)
        return changes


def looked_at(row: StructType, routes: Sequence[Route]) -> StructType:
    """The columns that some route names. A struct needs one at least; its being there or not is what routes ask for too."""
    sql = " ".join(text for route in routes for text in (route.sql.condition, route.sql.failure, route.sql.key) if text)
    named = [field for field in row.fields if f"`{field.name.replace('`', '``')}`" in sql]
    return StructType(named or row.fields[:1])


def _images(table: int, row: StructType) -> Iterable[Column]:
    """The two rows of a change, which the SQL of routes calls `old` and `new`."""
    for name in _IMAGES:
        text = F.when(F.col("table") == table, F.col(f"{name}_json").cast("string"))
        yield F.from_json(text, row).alias(name)


def _hits(table: int, routes: Sequence[Route]) -> Column:
    return F.when(F.col("table") == table, F.array(*(_taken(route) for route in routes))).otherwise(F.array())


def _looks_at_rows(route: Route) -> bool:
    return (route.sql.condition, route.sql.failure, route.sql.key) != ("TRUE", "FALSE", None)


def _taken(route: Route) -> Column:
    reaches = F.col("op").isin(*route.operations) & F.col("only_route").isNull()
    if route.snapshot:
        reaches |= (F.col("op") == _READ) & (F.col("only_route") == route.id)
        reaches &= F.col("skip_routes").isNull() | ~F.col("skip_routes").contains(f",{route.id},")
    reaches &= F.col("cursor") > route.since
    if route.until is not None:
        reaches &= F.col("cursor") < route.until
    failed = _hit(route.id, F.lit(True), F.lit(None))
    matched = _hit(route.id, F.lit(False), F.lit(None) if route.sql.key is None else F.expr(route.sql.key))
    return F.when(reaches, F.when(F.expr(route.sql.failure), failed).when(F.expr(route.sql.condition), matched))


def _hit(route: int, failed: Column, key: Column) -> Column:
    return F.struct(F.lit(route).alias("route"), failed.alias("failed"), key.cast("string").alias("record_key"))


def _by_table(routes: Iterable[Route]) -> dict[int, list[Route]]:
    found: dict[int, list[Route]] = {}
    for route in routes:
        found.setdefault(route.table, []).append(route)
    return found
