"""Files are copied into tables and back, on a real server: all types, wrong rows, a server that dies on the way."""

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from tailrace.client import AsyncClient, Client, CopyProgress, CopyStoppedError, RejectedRow
from tailrace.model.errors import InvalidRequestError, SqlError, UnknownTableError
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.server import ServerProcess

COLUMNS = """id BIGINT PRIMARY KEY, truth BOOLEAN, small SMALLINT, whole INTEGER, number DOUBLE, price DECIMAL(12, 3),
    note TEXT, data BYTES, day DATE, at TIMESTAMP, ident UUID, doc JSON, items INTEGER[], words TEXT[],
    half REAL, clock TIME, code VARCHAR(4), mark CHAR(3)"""
UUID = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
LINES = (
    (
        f'1,t,-5,70000,1e+20,10.500,"two\nlines, ""quoted""",\\x00ff,2026-01-31,2026-01-31 11:45:00.5+00,{UUID},'
        '"{""a"":[1,null]}","{1,NULL}","{x,""y z"",""""}",0.1,13:45:00.5,abcd,x  '
    ),
    f'2,f,0,0,-0.5,-0.001,"",\\x,1999-12-31,0001-01-01 00:00:00+00,{UUID},"""text""",{{}},{{}},-1.5e+10,00:00:00,"",abc',
    "3,,,,,,,,,,,,,,,,,",
    f'4,t,1,1,0.1,1.000,é 😀,\\x61,2026-01-31,2026-01-31 11:45:00+00,{UUID},1,{{7}},"{{NULL,""NULL""}}",-0.5,23:59:59.9,é,   ',
)
ROWS = "".join(f"{line}\n" for line in LINES)
HEADER = "id,truth,small,whole,number,price,note,data,day,at,ident,doc,items,words,half,clock,code,mark\n"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as open_client:
        yield open_client


@pytest.fixture
def table(url: str, topic: str) -> str:
    return _create(url, f"copied.{topic}", COLUMNS)


@pytest.fixture
def narrow(url: str, topic: str) -> str:
    return _create(url, f"narrow.{topic}", "id BIGINT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 7, note TEXT")


def _create(url: str, name: str, columns: str) -> str:
    _sql(url, f"CREATE TABLE {name} ({columns})")
    return name


def _sql(url: str, text: str) -> list[Any]:
    answer = httpx.post(f"{url}/api/sql", json={"sql": text}, timeout=PATIENCE_SECONDS)
    answer.raise_for_status()
    rows: list[Any] = answer.json()["rows"]
    return rows


def _csv(client: Client, source: str) -> str:
    out = io.BytesIO()
    client.copy_out(source, out, format="csv")
    return out.getvalue().decode()


def test_csv_of_all_types_comes_back_as_it_was(client: Client, table: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER + ROWS)
    result = client.copy_into(table, tmp_path / "in.csv")
    assert (result.rows, result.rejected) == (4, 0)
    client.copy_out(table, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == HEADER + ROWS


def test_parquet_of_all_types_comes_back_as_it_was(client: Client, table: str, url: str, topic: str, tmp_path: Path) -> None:
    client.copy_into(table, io.BytesIO((HEADER + ROWS).encode()), format="csv")
    client.copy_out(table, tmp_path / "all.parquet")
    again = _create(url, f"again.{topic}", COLUMNS)
    assert client.copy_into(again, tmp_path / "all.parquet").rows == 4
    assert _csv(client, again) == HEADER + ROWS


async def _copied(url: str, table: str, source: Path, target: Path) -> tuple[int, int]:
    async with AsyncClient(url) as client:
        into = await client.copy_into(table, source)
        out = await client.copy_out(table, target)
        return into.rows, out.rows


def test_asyncio_copies_the_same(url: str, table: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(HEADER + ROWS)
    assert asyncio.run(_copied(url, table, tmp_path / "in.csv", tmp_path / "out.csv")) == (4, 4)
    assert (tmp_path / "out.csv").read_text() == HEADER + ROWS


def test_arrow_tables_and_readers_are_copied(client: Client, narrow: str) -> None:
    rows = pa.table({"id": [1, 2], "note": ["a", None]})
    assert client.copy_into(narrow, rows).rows == 2
    more = pa.table({"id": pa.array([3], pa.int32()), "n": pa.array([1], pa.int8())})
    assert client.copy_into(narrow, pa.RecordBatchReader.from_batches(more.schema, more.to_batches())).rows == 1
    assert _csv(client, narrow) == "id,n,note\n1,7,a\n2,7,\n3,1,\n"


def test_queries_are_copied_out(client: Client, narrow: str) -> None:
    client.copy_into(narrow, pa.table({"id": range(100), "n": range(100)}))
    out = io.BytesIO()
    result = client.copy_out(f"SELECT id FROM {narrow} WHERE id >= ?", out, params=[98], format="csv", header=False)
    assert (result.rows, out.getvalue()) == (2, b"98\n99\n")


def test_every_row_is_a_change_event(client: Client, narrow: str, url: str) -> None:
    client.copy_into(narrow, io.BytesIO(b"1,2,x\n2,3,y\n"), format="csv", header=False)
    events = _sql(url, f"SELECT value FROM _changes.{narrow}")
    assert len(events) == 2


def test_many_rows_go_in_by_chunks_with_progress(client: Client, narrow: str, url: str) -> None:
    told: list[CopyProgress] = []
    data = "id,n,note\n" + "".join(f"{number},{number % 7},note {number}\n" for number in range(90_000))
    result = client.copy_into(narrow, io.BytesIO(data.encode()), format="csv", on_progress=told.append)
    assert result.rows == 90_000
    assert _sql(url, f"SELECT count(*), sum(id)::text FROM {narrow}") == [[90_000, str(sum(range(90_000)))]]
    done = [one for one in told if one.pending_line is None]
    assert [one.rows for one in done] == sorted({one.rows for one in done})
    assert done[-1].bytes == done[-1].total_bytes == len(data)


def test_a_wrong_value_stops_behind_the_rows_before_it(client: Client, narrow: str, url: str, tmp_path: Path) -> None:
    good = "".join(f"{number},1,x\n" for number in range(50_000))
    (tmp_path / "in.csv").write_text(f"id,n,note\n{good}50000,abc,x\n50001,2,y\n")
    with pytest.raises(CopyStoppedError) as stopped:
        client.copy_into(narrow, tmp_path / "in.csv")
    error = stopped.value
    assert str(error).startswith(f'{tmp_path}/in.csv, line 50,002, column n: invalid input syntax for type integer: "abc"')
    assert (error.line, error.column_name, error.value, error.rows, error.next_line) == (50_002, "n", "abc", 50_000, 50_002)
    assert _sql(url, f"SELECT count(*) FROM {narrow}") == [[50_000]]
    assert client.copy_into(narrow, tmp_path / "in.csv", start_line=error.next_line + 1).rows == 1


@pytest.mark.parametrize(
    ("line", "reason", "column"),
    [
        ("1", 'missing data for column "n"', None),
        ("1,2,3,4", "extra data after last expected column", None),
        ('1,2,"x', "unterminated CSV quoted field", None),
        ("0,2,x", "already has a row with id = 0", None),
        ("1,,x", "violates not-null constraint", "n"),
        ("99999999999999999999,1,x", "out of range for type bigint", "id"),
    ],
)
def test_each_kind_of_wrong_row_is_named(client: Client, narrow: str, line: str, reason: str, column: str | None) -> None:
    with pytest.raises(CopyStoppedError, match=reason) as stopped:
        client.copy_into(narrow, io.BytesIO(f"id,n,note\n0,1,x\n{line}".encode()), format="csv")
    assert (stopped.value.line, stopped.value.column_name, stopped.value.rows) == (3, column, 1)


def test_skipped_rows_are_counted_and_kept(client: Client, narrow: str, tmp_path: Path) -> None:
    rows = 'id,n,note\n1,1,x\n2,two,"a\nb"\n3\n1,1,again\n5,,x\n6,6,y\n6,6,twice\n'
    told: list[RejectedRow] = []
    result = client.copy_into(
        narrow,
        io.BytesIO(rows.encode()),
        format="csv",
        on_error="skip",
        reject_file=tmp_path / "bad.csv",
        on_rejected=told.append,
    )
    assert (result.rows, result.rejected) == (2, 5)
    assert [(row.line, row.column) for row in told] == [(3, "n"), (5, None), (6, "id"), (7, "n"), (9, "id")]
    assert (tmp_path / "bad.csv").read_text() == 'id,n,note\n2,two,"a\nb"\n3\n1,1,again\n5,,x\n6,6,twice\n'
    assert _csv(client, narrow) == "id,n,note\n1,1,x\n6,6,y\n"


def test_rows_that_break_a_constraint_are_skipped(client: Client, url: str, topic: str) -> None:
    name = _create(url, f"checked.{topic}", "id BIGINT PRIMARY KEY, n INTEGER CHECK (n > 0), code VARCHAR(3) UNIQUE")
    rows = "id,n,code\n1,1,a\n2,-1,b\n3,0,c\n4,2,long\n5,3,a\n6,4,d\n"
    told: list[RejectedRow] = []
    result = client.copy_into(name, io.BytesIO(rows.encode()), format="csv", on_error="skip", on_rejected=told.append)
    assert (result.rows, [row.line for row in told]) == (2, [3, 4, 5, 6])
    assert _csv(client, name) == "id,n,code\n1,1,a\n6,4,d\n"
    with pytest.raises(CopyStoppedError, match="_n_check") as stopped:
        client.copy_into(name, io.BytesIO(b"id,n,code\n7,1,x\n8,-1,y\n"), format="csv")
    assert stopped.value.line == 3


def test_rows_that_break_a_constraint_are_skipped_without_their_key(client: Client, url: str, topic: str) -> None:
    columns = "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n INTEGER CHECK (n > 0), code TEXT UNIQUE"
    name = _create(url, f"keyless.{topic}", columns)
    rows = "n,code\n1,a\n-1,b\n2,a\n3,c\n3,c\n0,d\n4,\n4,\n"
    told: list[RejectedRow] = []
    result = client.copy_into(name, io.BytesIO(rows.encode()), format="csv", on_error="skip", on_rejected=told.append)
    assert (result.rows, [(row.line, row.column) for row in told]) == (4, [(3, None), (4, "code"), (6, "code"), (7, None)])
    assert "already has a row with code = 'a'" in told[1].reason
    assert "_n_check" in told[0].reason
    assert [line.partition(",")[2] for line in _csv(client, name).split()] == ["n,code", "1,a", "3,c", "4,", "4,"]
    with pytest.raises(CopyStoppedError, match="code = 'a'") as stopped:
        client.copy_into(name, io.BytesIO(b"n,code\n1,new\n1,a\n"), format="csv")
    assert stopped.value.line == 3
    # The next number of the key may be taken: such a row has no column of the file to name.
    last = int(_csv(client, name).split()[-1].partition(",")[0])
    taken = "id,n,code\n" + "".join(f"{id},1,k{id}\n" for id in range(last + 1, last + 50))
    client.copy_into(name, io.BytesIO(taken.encode()), format="csv")
    told.clear()
    result = client.copy_into(name, io.BytesIO(b"n,code\n7,x\n"), format="csv", on_error="skip", on_rejected=told.append)
    assert (result.rows, [(row.line, row.column) for row in told]) == (0, [(2, None)])
    assert "already has a row with id = " in told[0].reason


def test_the_row_that_breaks_a_constraint_is_named_where_rows_are_planned_one_by_one(
    client: Client, url: str, topic: str
) -> None:
    columns = "id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n NUMERIC UNIQUE CHECK (n > 0), i INTERVAL UNIQUE"
    name = _create(url, f"planned.{topic}", columns)
    rows = "id,n,i\n1,1.5,1 mon\n2,-1,1 day\n3,1.50,2 days\n4,2,30 days\n5,NaN,3 days\n6,nan,4 days\n7,3,\n"
    told: list[RejectedRow] = []
    result = client.copy_into(name, io.BytesIO(rows.encode()), format="csv", on_error="skip", on_rejected=told.append)
    assert (result.rows, [(row.line, row.column) for row in told]) == (3, [(3, None), (4, "n"), (5, "i"), (7, "n")])
    assert _csv(client, name) == "id,n,i\n1,1.5,1 mon\n5,NaN,3 days\n7,3,\n"


def test_rejected_rows_of_parquet_are_kept_as_csv(client: Client, narrow: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1, 2], "n": [1, 1 << 40]}), tmp_path / "in.parquet")
    result = client.copy_into(narrow, tmp_path / "in.parquet", on_error="skip", reject_file=tmp_path / "bad.csv")
    assert (result.rows, result.rejected) == (1, 1)
    assert (tmp_path / "bad.csv").read_text() == f"id,n\n2,{1 << 40}\n"


def test_parquet_whose_types_do_not_fit_is_refused(client: Client, narrow: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1.5]}), tmp_path / "in.parquet")
    with pytest.raises(CopyStoppedError, match="'id' is bigint and can't store values of Arrow's double") as stopped:
        client.copy_into(narrow, tmp_path / "in.parquet")
    assert isinstance(stopped.value.__cause__, SqlError)


def test_an_unknown_table_and_a_topic_are_refused(client: Client, topic: str) -> None:
    with pytest.raises(SqlError):
        client.copy_into("no.such.table", io.BytesIO(b"1\n"), format="csv")
    with pytest.raises(CopyStoppedError, match="is a topic, not a table") as stopped:
        client.copy_into(topic, pa.table({"value": ["x"]}))
    assert isinstance(stopped.value.__cause__, UnknownTableError)


def test_a_failed_query_leaves_no_file(client: Client, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        client.copy_out("SELECT nonsense FROM nowhere", tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("body", [b"", b"id\n1\n", b"\xff\xff\xff\xff\x08\0\0\0\0\0\0\0\0\0\0\0"])
def test_other_bytes_than_arrow_are_refused(url: str, narrow: str, body: bytes) -> None:
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = httpx.post(f"{url}/api/tables/{narrow}/rows", content=body, headers=headers, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, answer.json()["outcome"]) == (400, "failed")


def test_more_rows_than_a_request_may_have_are_refused(url: str, narrow: str) -> None:
    sink = io.BytesIO()
    schema = pa.schema([("id", pa.null())])
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.nulls(100_001)], schema=schema))
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = httpx.post(f"{url}/api/tables/{narrow}/rows", content=sink.getvalue(), headers=headers, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, "copy_rows" in answer.json()["detail"]) == (400, True)


def test_a_killed_server_loses_nothing_that_was_told_and_the_copy_goes_on(tmp_path: Path) -> None:
    rows = 300_000
    file = tmp_path / "in.csv"
    file.write_text("id,n,note\n" + "".join(f"{number},1,note {number}\n" for number in range(rows)))
    http = f"127.0.0.1:{free_port()}"
    enough = threading.Event()

    def watch(progress: CopyProgress) -> None:
        if progress.rows >= 60_000:
            enough.set()

    with ServerProcess(tmp_path / "data", "--http", http) as server, Client(server.url) as client:
        _sql(server.url, "CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER, note TEXT)")

        def kill() -> None:
            enough.wait(PATIENCE_SECONDS)
            server.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(CopyStoppedError) as stopped:
            client.copy_into("t", file, on_progress=watch)
        killer.join()
        error = stopped.value
        server.start()
        ((there,),) = _sql(server.url, "SELECT count(*) FROM t")
        assert error.rows >= 60_000
        assert there == error.next_line - 2 or there == (error.unknown_until or 0) - 1
        client.copy_into("t", file, start_line=there + 2)
        assert _sql(server.url, "SELECT count(*), sum(id)::text FROM t") == [[rows, str(sum(range(rows)))]]
