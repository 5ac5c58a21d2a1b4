"""DuckDB's session between queries: what one query does to it must not cost the next one a new process."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tailrace.model.errors import SqlError
from tailrace.model.limits import MIB
from tailrace.sql.select.worker import DuckDbSession, QueryInterrupted

HEAVY = "SELECT count(*) FROM n a, n b, n c, n d WHERE a.v + b.v + c.v + d.v < 1"


class Numbers:
    schema = pa.schema([("v", pa.int64())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array(range(3_000))], schema=self.schema)


@pytest.fixture
def session() -> Iterator[DuckDbSession]:
    session = DuckDbSession(256 * MIB)
    yield session
    session.close()


def count(session: DuckDbSession, text: str = "SELECT count(*) FROM n") -> int:
    session.begin()
    _, batches = session.run(text, {"n": Numbers()})
    return int(pa.Table.from_batches(list(batches)).column(0)[0].as_py())


def test_a_session_is_fit_after_a_query_was_interrupted(session: DuckDbSession) -> None:
    for _ in range(3):
        timer = threading.Timer(0.1, session.interrupt)
        timer.start()
        with pytest.raises(QueryInterrupted):
            count(session, HEAVY)
        timer.join()
        assert session.reset()
    assert count(session) == 3_000


@pytest.mark.parametrize("text", ["SELECT nope FROM n", "SELECT CAST('x' || v AS INT) FROM n", "SELECT ("])
def test_a_session_is_fit_after_a_query_failed(session: DuckDbSession, text: str) -> None:
    with pytest.raises(SqlError):
        count(session, text)
    assert session.reset()
    assert count(session) == 3_000
