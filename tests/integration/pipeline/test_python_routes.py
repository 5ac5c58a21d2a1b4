"""Parts of routes that Spark can't compute are evaluated by Python in its tasks: the pipeline does what the dry run shows."""

import json
from typing import NamedTuple

from tests.integration.pipeline.conftest import RunOnce
from tests.support.routed_tables import RoutedTables

NAMES = ("abc", "ABC", "abd", "5", "0x5", "x", None)
NUMBERS = (0, 1, 5, 20, None)
INTERVALS = ("1 mon", "29 days 00:00:01", "3 days", None)
NUMERICS = ("1.5", "1.500", "NaN", "-Infinity", "1e40", None, "0.1")


class PythonRoute(NamedTuple):
    topic: str
    where: str
    key: str | None
    in_python: str | None
    """What EXPLAIN says of it."""
    failures: int

    def text(self) -> str:
        by = "" if self.key is None else f" PARTITION BY ({self.key})"
        return f"ALTER TOPIC {self.topic} ADD SOURCE t ON INSERT, DELETE WHERE ({self.where}){by} WITH (payload = 'full')"


ROUTES = (
    # Spark fails where n is 0, and Python where the name is no number; each counts only where the other is not false.
    PythonRoute("mixed", "10 / n >= 2 AND name::int::text = initcap(name)", None, "name::int::text = initcap(name)", 36),
    PythonRoute("own_key", "n > 0", "initcap(name)", "PARTITION BY initcap(name)", 0),
    PythonRoute("failing_key", "n > 0 AND name <> 'x'", "to_number(name, '9')::int", None, 18),
    # Spark reads decimal digits only.
    PythonRoute("read_again", "name::int = 5", "name::int", None, 40),
    PythonRoute("plain", "n > 0 AND name IS NULL", "n", None, 0),
    PythonRoute("ordered", "e > 'low' AND e <> 'top'", None, "e > 'low'", 0),
    PythonRoute("any_scale", "n > 0 AND r * 2 > 2.99", None, "r * 2 > 2.99", 0),
    PythonRoute("spans", "n > 0 AND i + interval '1 day' > '1 mon'", None, "i + interval '1 day' > '1 mon'", 0),
    PythonRoute("json", "n = 1 AND j @> '{\"a\": [1]}'", None, "j @> '{\"a\": [1]}'", 0),
)


def test_the_pipeline_does_what_the_dry_run_shows(tables: RoutedTables, route_once: RunOnce) -> None:
    api = tables.api
    api.sql("CREATE TYPE level AS ENUM ('low', 'high', 'top')")
    api.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, n INT, j JSON, e level, r NUMERIC, i INTERVAL)")
    for route in ROUTES:
        api.create_topic(route.topic, 5)
        api.sql(route.text())
    # Routes know the labels that come after them.
    api.sql("ALTER TYPE level ADD VALUE 'mid' BEFORE 'high'")
    rows = [(name, n) for name in NAMES for n in NUMBERS]
    for id, (name, n) in enumerate(rows):
        level = ("low", "mid", "high", "top", None)[id % 5]
        cells = (json.dumps({"a": [id % 2, 7]}), level, NUMERICS[id % 7], INTERVALS[id % 4])
        api.sql("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", id, name, n, *cells)
    api.sql("DELETE FROM t")
    (report,) = route_once()
    assert report.rows == 2 * len(rows)
    for route in ROUTES:
        shown = api.ask("/api/sql", {"sql": f"EXPLAIN {route.text()}"})
        explained = {str(row[0]): row[3:] for row in shown["rows"]}
        assert len(explained) == 2 * len(rows)
        failed = {cursor for cursor, (outcome, *_) in explained.items() if outcome == "failed"}
        matched = {cursor: place for cursor, (outcome, *place) in explained.items() if outcome == "true"}
        assert matched, route
        stored = {
            each.headers["cursor"].decode(): [each.partition, json.loads(each.message.value or b"")]
            for each in tables.records(route.topic)
        }
        assert stored == matched, route
        assert len(failed) == route.failures, route
        if failed:
            letters = tables.records(f"{route.topic}.dead_letters")
            assert {each.headers["cursor"].decode() for each in letters} == failed
            assert all("can't be evaluated" in json.loads(each.message.value or b"")["cause"] for each in letters)
        said = shown["status"].partition("; Python evaluates ")[2]
        if route.in_python is not None:
            assert said == route.in_python
