"""Python decides on what Spark leaves open as if it had evaluated the whole route."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tailrace.model.ids import RouteId, TableId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import MarkMove
from tailrace.model.route import DIALECT, Route, RouteRecord
from tailrace.pipeline.plan import FAILED, MATCHED, RouteBits, bits_of
from tailrace.pipeline.python_conditions import PythonConditions
from tailrace.pipeline.routed_records import RouteTarget
from tailrace.pipeline.steps import CHANGES, EvaluatedStep
from tailrace.sql.routes.check import analyzed_route
from tailrace.sql.routes.compile import compile_for_spark
from tailrace.sql.routes.dry_run import dry_run
from tailrace.sql.routes.evaluation import AnalyzedRoute, RouteOutcome
from tailrace.wire.routing import ChangeEvent, partition_key
from tests.support.route_cases import TABLE, Images, checked, event, row

ROWS = [row(n=n, name=name) for n, name in product((0, 1, 5, 20, None), ("abc", "5", "x", None))]
CHANGED = [event(Images(None, new), "insert") for new in ROWS]
KEY = "key_40"


def stored(where: str | None, keys: Sequence[str] = ()) -> Route:
    """A route as the pipeline gets it."""
    route = checked(where, keys, ("insert",))
    made = Route(
        id=RouteId(7),
        topic=TopicId(1),
        topic_name="t",
        table=TableId(2),
        table_name="chat.messages",
        changes=TopicId(3),
        operations=("insert",),
        payload="full",
        dialect=DIALECT,
        sql=compile_for_spark(route, TABLE, DEFAULT_LIMITS),
    )
    return msgspec.json.decode(msgspec.json.encode(RouteRecord("add", made)), type=RouteRecord).route


def step_of(changes: Sequence[ChangeEvent], words: Sequence[int], keys: Sequence[str | None] | None) -> EvaluatedStep:
    columns: list[list[Any]] = [[0] * len(changes)]
    columns += [[getattr(one, name) for one in changes] for name in ("key", "old", "new", "cursor", "timestamp")]
    columns.append(list(range(len(changes))))
    batch = pa.RecordBatch.from_arrays([pa.array(c, t) for c, t in zip(columns, CHANGES.types, strict=True)], schema=CHANGES)
    results = {"word_1": pa.array(words, pa.int64()), **({} if keys is None else {KEY: pa.array(keys, pa.string())})}
    return EvaluatedStep(MarkMove("5/0", 0, len(changes)), batch, pa.RecordBatch.from_pydict(results))


def decided(route: Route, bits: Sequence[int], keys: Sequence[str | None] | None = None) -> tuple[list[int], list[str | None]]:
    """What is left of Spark's bits and keys, among those of another route."""
    where = bits_of(40, route.sql.has_key)
    assert where == RouteBits("word_1", 18, KEY if route.sql.has_key else None)
    target = RouteTarget(route.id, route.topic, "t", "chat.messages", "full", where, analyzed_route(route))
    other = MATCHED << 4
    step = PythonConditions([target]).decided(step_of(CHANGED, [other | one << where.shift for one in bits], keys))
    words = step.results.column("word_1").to_pylist()
    assert all(word & ~(3 << where.shift) == other for word in words)
    found = step.results.column(KEY).to_pylist() if route.sql.has_key else []
    return [word >> where.shift for word in words], found


def outcomes(where: str | None, keys: Sequence[str] = ()) -> list[RouteOutcome]:
    return dry_run(checked(where, keys, ("insert",)), TABLE, CHANGED, DEFAULT_LIMITS)


def bit(outcome: RouteOutcome) -> int:
    return FAILED if outcome.failed else MATCHED if outcome.matches else 0


@pytest.mark.parametrize(
    ("by_spark", "by_python"),
    [
        ("n > 1", "initcap(name) = 'Abc'"),
        ("10 / n > 1", "initcap(name) = 'Abc'"),
        ("n > 1", "name::int = length(initcap(name)) + 4"),
        ("10 / n > 1", "name::int = length(initcap(name)) + 4"),
    ],
)
def test_a_condition_of_two_parts_is_that_of_the_whole(by_spark: str, by_python: str) -> None:
    route = stored(f"{by_python} AND {by_spark}")
    assert route.sql.python is not None
    assert route.sql.python.conjuncts == (0,)
    # Where Spark's part is null or fails, Python has to look.
    bits = [0 if one.matches is False else MATCHED if one.matches else FAILED for one in outcomes(by_spark)]
    assert decided(route, bits)[0] == list(map(bit, outcomes(f"{by_spark} AND {by_python}")))


def test_a_change_on_which_spark_fails_is_evaluated_again() -> None:
    route = stored("name::int = 5 AND n > 0", ["n"])
    assert route.sql.python is not None
    assert route.sql.python.conjuncts == ()
    meant = outcomes("name::int = 5 AND n > 0", ["n"])
    found, keys = decided(route, [FAILED] * len(ROWS), [None] * len(ROWS))
    assert found == list(map(bit, meant))
    assert keys == [partition_key(one.key_values).decode() if one.matches else None for one in meant]
    # What Spark has decided stays as it is.
    by_spark = [MATCHED, 0, FAILED, FAILED] * 5
    found, keys = decided(route, by_spark, ["[1]", None, None, None] * 5)
    mixed = [bit(one) if said == FAILED else said for one, said in zip(meant, by_spark, strict=True)]
    assert found == mixed
    assert [keys[at] for at, said in enumerate(by_spark) if said == MATCHED] == ["[1]"] * 5


def test_keys_that_spark_can_t_make_are_made_for_the_changes_that_match() -> None:
    route = stored("n > 1", ["initcap(name)", "n"])
    assert route.sql.key is None
    assert route.sql.has_key
    meant = outcomes("n > 1", ["initcap(name)", "n"])
    found, keys = decided(route, list(map(bit, meant)))
    assert found == list(map(bit, meant))
    assert keys == [partition_key(one.key_values).decode() if one.matches else None for one in meant]
    assert '["Abc",5]' in keys


def test_a_key_that_fails_counts_where_the_whole_condition_is_true() -> None:
    where, keys = "n > 1 AND initcap(name) <> 'X'", ["name::int"]
    route = stored(where, keys)
    assert route.sql.key is None
    bits = [0 if one.matches is False else MATCHED if one.matches else FAILED for one in outcomes("n > 1")]
    assert decided(route, bits)[0] == list(map(bit, outcomes(where, keys)))


def test_a_route_that_spark_alone_evaluates_is_left_alone() -> None:
    route = stored("n > 1")
    old = msgspec.structs.replace(route, sql=msgspec.structs.replace(route.sql, python=None))
    assert analyzed_route(old) is None
    bits = [MATCHED, FAILED, 0, 0] * 5
    assert decided(old, bits)[0] == bits


def test_what_reads_the_clock_fails_when_it_is_read_from_a_row() -> None:
    route = analyzed_route(stored("name::date > '2020-01-01'"))
    assert isinstance(route, AnalyzedRoute)
    (found,) = dry_run(
        checked("name::date > '2020-01-01'"), TABLE, [event(Images(None, row(name="today")), "insert")], DEFAULT_LIMITS
    )
    assert found.failed


def test_columns_that_python_alone_uses_count_as_used() -> None:
    assert stored("initcap(name) = 'Abc'", ["n"]).sql.columns == {"name", "n"}
