"""CSV is read and written as PostgreSQL's COPY reads and writes it, byte for byte."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tailrace.client.copying.csv_reader import CsvFormat, CsvReader, InvalidRow
from tailrace.client.copying.csv_writer import CsvWriter
from tests.differential.postgres import running_postgres

_NAMES = ["a", "b"]
_FORMATS = (CsvFormat(), CsvFormat(delimiter=";", quote="'", escape="\\", null="\\N"), CsvFormat(null="nil"))


@pytest.fixture(scope="module")
def connection() -> Iterator["psycopg.Connection[Any]"]:
    with running_postgres() as postgres:
        connection = postgres._connection
        connection.execute("CREATE TABLE copied (number int GENERATED ALWAYS AS IDENTITY, a text, b text)")
        yield connection


_OUT = """SELECT number, number % 2 = 0 AS truth, (number * 1.5)::float8 AS half, power(10, number - 10)::float8 AS power,
    (number / 7.0)::numeric(20, 8) AS part, chr(30 + number) || E'\\n"x",' AS note,
    decode(lpad(to_hex(number), 4, '0'), 'hex') AS data,
    date '2026-01-31' + number AS day, timestamptz '2026-01-31 11:45:00.5+00' + number * interval '1.25 seconds' AS at,
    CASE WHEN number % 3 > 0 THEN 'it''s' END AS maybe, '' AS empty, ARRAY[number, NULL] AS items,
    ARRAY['a b', NULL, '', 'NULL', chr(30 + number), '{x}'] AS words FROM generate_series(4, 60) AS number"""


@pytest.mark.parametrize("csv", _FORMATS)
def test_csv_is_written_as_by_postgresql(connection: Any, csv: CsvFormat) -> None:
    cursor = psycopg.Connection.connect(connection.info.dsn).execute(_OUT)
    names = [column.name for column in cursor.description or ()]
    rows = cursor.fetchall()
    columns = [pa.array(list(values), _ARROW.get(name)) for name, values in zip(names, zip(*rows, strict=True), strict=True)]
    cursor.connection.close()
    ours = CsvWriter(csv).header(names) + CsvWriter(csv).rows(columns)
    with connection.cursor() as asked, asked.copy(f"COPY ({_OUT}) TO STDOUT ({_options(csv)}, HEADER true)".encode()) as copy:
        assert ours.decode() == b"".join(map(bytes, copy)).decode()


_ARROW = {"at": pa.timestamp("us", "UTC"), "part": pa.decimal128(20, 8), "note": pa.string()}


def _options(csv: CsvFormat) -> str:
    quote = csv.quote.replace("'", "''")
    return f"FORMAT csv, DELIMITER '{csv.delimiter}', QUOTE '{quote}', ESCAPE '{csv.escape_character}', NULL '{csv.null}'"


def _by_postgres(connection: "psycopg.Connection[Any]", data: bytes, csv: CsvFormat) -> list[tuple[Any, ...]] | str:
    connection.execute("TRUNCATE copied")
    try:
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY copied (a, b) FROM STDIN ({_options(csv)})".encode()) as copy:
                copy.write(data)
            return cursor.execute("SELECT a, b FROM copied ORDER BY number").fetchall()
    except psycopg.Error as error:
        return error.diag.message_primary or ""


def _by_us(data: bytes, csv: CsvFormat, block_bytes: int) -> list[tuple[Any, ...]] | str:
    reader = CsvReader(csv)
    rows: list[tuple[Any, ...]] = []
    faults: list[InvalidRow] = []
    parts = [reader.feed(data[at : at + block_bytes], _NAMES) for at in range(0, len(data), block_bytes)]
    for part in [*parts, reader.finish(_NAMES)]:
        rows += zip(*(column.to_pylist() for column in part.columns), strict=True)
        faults += part.invalid
    return min(faults, key=lambda fault: fault.line).reason if faults else rows


_PIECES = st.sampled_from(
    ["a", "b", "1", ",", ";", '"', "'", '""', "\\", "\\N", "\\.", "nil", "\n", "\r\n", "\r", " ", "é", "\x00", "\xff"]
)
_TEXTS = st.lists(_PIECES, max_size=12).map("".join)
_QUOTED = st.text("ab,;\"'\\\n\ré", max_size=4)
_FIELDS = st.one_of(
    st.sampled_from(["", "\\N", "nil", "x", "é"]),
    _QUOTED.map(lambda text: '"' + text.replace('"', '""') + '"'),
    _QUOTED.map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"),
)
_LINES = st.builds(
    lambda rows, comma, end: "".join(comma.join(row) + end for row in rows),
    st.lists(st.lists(_FIELDS, min_size=2, max_size=2), max_size=5),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(_TEXTS, _LINES), st.sampled_from(_FORMATS), st.sampled_from([1, 3, 1000]))
@example("x,y\r\nz,w\n", _FORMATS[0], 1000)
@example("x,y\nz,w\r\n", _FORMATS[0], 1000)
@example("x,y\r", _FORMATS[0], 1)
@example('a"b,c"d,e\n', _FORMATS[0], 1000)
@example("\n", _FORMATS[0], 1000)
@example("a,b\n\nc,d\n", _FORMATS[0], 1000)
@example("'it\\'s';'a\\b'\n", _FORMATS[1], 1)
@example("\\.\n", _FORMATS[0], 1000)
def test_csv_is_read_as_by_postgresql(connection: Any, text: str, csv: CsvFormat, block_bytes: int) -> None:
    data = text.encode().replace("\xff".encode(), b"\xff")
    ours, theirs = _by_us(data, csv, block_bytes), _by_postgres(connection, data, csv)
    if isinstance(theirs, str) and theirs.startswith("invalid byte sequence"):
        # PostgreSQL checks the encoding of a whole block before it looks for rows.
        assert isinstance(ours, str)
    else:
        assert ours == theirs
