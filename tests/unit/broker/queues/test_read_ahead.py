from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.read_ahead import RECORDS_AHEAD, ReadAhead
from tailrace.model.ids import Offset
from tailrace.model.limits import KIB
from tailrace.model.record import Record


def record(offset: int, size: int = 1) -> Record:
    return Record(None, b"x" * size, offset=Offset(offset))


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 40), st.integers(1, 5))
def test_records_come_in_order_and_whoever_goes_on_misses_none(offsets: set[int], most: int, size_kib: int) -> None:
    records = [record(offset, size_kib * KIB) for offset in sorted(offsets)]
    ahead = ReadAhead()
    ahead.keep(Offset(0), records, Offset(301))
    got: list[Record] = []
    at = Offset(0)
    while (found := ahead.take(at, most)) is not None:
        assert len(found.records) <= most
        assert found.end > at
        got += found.records
        at = found.end
    assert got == [each for each in records if each.offset < at]
    assert at == 301 or len(got) < len(records)


def test_what_is_kept_is_bounded() -> None:
    ahead = ReadAhead()
    ahead.keep(Offset(0), [record(offset) for offset in range(1_000)], Offset(1_000))
    assert ahead.take(Offset(0), 1) is not None
    rest = ahead.take(Offset(1), 1_000)
    assert rest is not None
    assert (len(rest.records), rest.end) == (RECORDS_AHEAD, RECORDS_AHEAD + 1)


def test_nothing_is_given_to_one_who_is_elsewhere() -> None:
    ahead = ReadAhead()
    ahead.keep(Offset(5), [record(5)], Offset(6))
    assert ahead.take(Offset(4), 1) is None
    assert ahead.take(Offset(6), 1) is None
