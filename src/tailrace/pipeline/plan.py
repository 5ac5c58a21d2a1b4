"""All routes as one plan: the rows of steps go in, and for each change comes out which routes it takes, in the same order.

A route is a condition in Spark's SQL, written when it was made, over the cells that it names. What a route says about a change
takes two bits: it takes the change, or it can't be evaluated for it. The bits of all routes are a few whole numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.model.route import Route
from tailrace.pipeline.cells import OPERATIONS, Cell, CellSlots, cells_in, over_slots, slots_for
from tailrace.pipeline.plan_columns import FAILED, TAKEN, verdict_at

Types = Mapping[int, Mapping[str, str]]
"""By table and column."""


class RoutingPlan:
    """The plan of some routes, made once and applied to every batch: to write it down takes longer than a small batch does."""

    def __init__(self, routes: Sequence[Route], slots: CellSlots) -> None:
        self.routes = routes
        self.verdicts = [verdict_at(number, route.sql.key is not None) for number, route in enumerate(routes)]
        types = _types(routes)
        words: dict[str, list[str]] = {}
        keys = []
        for route, verdict in zip(routes, self.verdicts, strict=True):
            sql = _OverSlots(route, slots, types)
            words.setdefault(verdict.word, []).append(_bits(route, sql, verdict.shift))
            if verdict.key is not None:
                keys.append(F.expr(f"CASE WHEN {_reaches(route)} AND ({sql.condition}) THEN {sql.key} END").alias(verdict.key))
        self._columns: list[Column] = [F.expr(" | ".join(bits)).alias(word) for word, bits in words.items()]
        self._columns += [*keys, F.col("step")]

    def apply(self, rows: DataFrame) -> DataFrame:
        """For each change the words and keys of its routes, and the rows that carry steps."""
        return rows.select(*self._columns)


def wanted_cells(routes: Iterable[Route]) -> dict[int, set[Cell]]:
    """By table, the cells that some route names."""
    found: dict[int, set[Cell]] = {}
    for route in routes:
        for text in (route.sql.condition, route.sql.failure, route.sql.key or ""):
            found.setdefault(route.table, set()).update(cells_in(text))
    return found


def slots_of(routes: Sequence[Route]) -> CellSlots:
    return slots_for(wanted_cells(routes), _types(routes))


class _OverSlots:
    """The SQL of a route, about slots."""

    def __init__(self, route: Route, slots: CellSlots, types: Types) -> None:
        self.condition, self.failure, self.key = (
            over_slots(text, route.table, slots, types[route.table])
            for text in (route.sql.condition, route.sql.failure, route.sql.key or "NULL")
        )


def _bits(route: Route, sql: _OverSlots, shift: int) -> str:
    """SQL for the bits of a route where they belong."""
    return (
        f"CASE WHEN {_reaches(route)} THEN"
        f" CASE WHEN {sql.failure} THEN {FAILED << shift}L WHEN {sql.condition} THEN {TAKEN << shift}L"
        " ELSE 0L END ELSE 0L END"
    )


def _reaches(route: Route) -> str:
    """SQL for whether a change is the route's business at all."""
    operations = ", ".join(str(OPERATIONS.index(each)) for each in route.operations)
    reaches = f"op IN ({operations}) AND only_route IS NULL"
    if route.snapshot:
        reaches = f"({reaches} OR op = {OPERATIONS.index('read')} AND only_route <=> {route.id})"
        reaches += f" AND (skip_routes IS NULL OR NOT contains(skip_routes, ',{route.id},'))"
    reaches = f"`table` = {route.table} AND {reaches} AND cursor > {route.since}L"
    return reaches if route.until is None else f"{reaches} AND cursor < {route.until}L"


def _types(routes: Iterable[Route]) -> Types:
    found: dict[int, dict[str, str]] = {}
    for route in routes:
        if route.table not in found:
            row = cast(StructType, StructType.fromDDL(route.sql.row)) if route.sql.row else StructType()
            found[route.table] = {field.name: field.dataType.simpleString() for field in row.fields}
    return found
