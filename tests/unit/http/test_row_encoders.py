"""The rows of SQL results as bytes: what a value looks like in each format."""

import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tailrace.http.row_encoders import ArrowRows, CsvRows, JsonLines
from tailrace.model.table import ColumnType
from tailrace.sql.results import ResultColumn

SMALL = Decimal("0.0000000001")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ColumnType("decimal"), SMALL, "0.0000000001"),
        (ColumnType("decimal", 20, 10), SMALL, "0.0000000001"),
        (ColumnType("decimal", 3, -2), Decimal("1.2E+3"), "1200"),
        (ColumnType("decimal", 8, 2), Decimal("1.50"), "1.50"),
        (ColumnType("decimal"), Decimal("NaN"), "NaN"),
        (ColumnType("decimal"), Decimal("-Infinity"), "-Infinity"),
    ],
)
def test_a_number_is_written_without_an_exponent(kind: ColumnType, value: Decimal, text: str) -> None:
    columns = [ResultColumn("n", kind), ResultColumn("l", ColumnType("list", element=kind))]
    lines, csv = JsonLines(), CsvRows()
    lines.begin(columns)
    csv.begin(columns)
    assert json.loads(lines.rows([(value, [value, None])])) == {"n": text, "l": [text, None]}
    assert csv.rows([(value, None)]).decode() == f"{text},\n"
    if kind.precision is None:
        arrow = ArrowRows()
        body = arrow.begin(columns) + arrow.rows([(value, [value, None])]) + arrow.end()
        assert pa.ipc.open_stream(io.BytesIO(body)).read_all().to_pylist() == [{"n": text, "l": [text, None]}]
