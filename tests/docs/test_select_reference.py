"""The columns of topics and system tables, and the functions that queries may call, are documented as they are."""

import re

import pyarrow as pa
import pytest

from tailrace.sql.duckdb.functions import AGGREGATES, FUNCTIONS, ROW_FUNCTIONS
from tailrace.sql.select.system import SYSTEM_TABLES
from tailrace.sql.select.topics import HIDDEN_COLUMNS, TOPIC_COLUMNS
from tests.docs.tables import REFERENCE

SYSTEM_PAGE = (REFERENCE / "system-tables.md").read_text()
SELECT_PAGE = (REFERENCE / "select.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
_TYPES = {
    pa.int32(): "integer",
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "text",
    pa.binary(): "bytes",
    pa.json_(): "json",
    pa.timestamp("us"): "timestamp",
    pa.list_(pa.string()): "text[]",
}


def section(page: str, heading: str) -> str:
    return page.partition(f"## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("table", SYSTEM_TABLES)
def test_every_column_of_a_system_table_is_documented_in_order(table: str) -> None:
    columns = SYSTEM_TABLES[table].columns
    documented = _ROW.findall(section(SYSTEM_PAGE, f"`system.{table}`"))
    assert documented == [(name, _TYPES[kind]) for name, kind in columns.items()]


def test_no_other_system_table_is_documented() -> None:
    assert re.findall(r"^## `system\.(\w+)`$", SYSTEM_PAGE, re.MULTILINE) == list(SYSTEM_TABLES)


def test_every_column_of_a_topic_is_documented_in_order() -> None:
    columns = {**TOPIC_COLUMNS, **HIDDEN_COLUMNS}
    assert _ROW.findall(section(SELECT_PAGE, "Columns of a topic")) == [(name, _TYPES[kind]) for name, kind in columns.items()]


def test_documented_functions_can_be_called() -> None:
    listed = set(re.findall(r"`(\w+)`", section(SELECT_PAGE, "Functions").partition("**Aggregates:**")[2])) - {"FROM"}
    known = {key.partition("(")[0] for key in (*FUNCTIONS, *AGGREGATES, *ROW_FUNCTIONS)}
    assert listed - known == set()
    assert len(listed) > 100
