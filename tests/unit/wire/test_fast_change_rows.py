"""The rows before and after a change are found in change events."""

import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError
from tailrace.wire.fast_change_rows import load_row_images

row_images = load_row_images()

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.sampled_from('ab"\\{}[],:é\n')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["old", "new", 'n"']), inner, max_size=2),
    max_leaves=6,
)
rows = st.none() | st.dictionaries(st.sampled_from(["id", "old", "new", '"', "\\"]), values, max_size=4)


@given(st.lists(st.tuples(rows, rows), min_size=1, max_size=20), st.sampled_from([{}, {"schema_version": 12}]))
def test_images_are_the_bytes_of_the_event(
    images: list[tuple[dict[str, object] | None, dict[str, object] | None]], version: dict[str, int]
) -> None:
    events = [
        msgspec.json.encode(
            {"op": "update", **version, "key": {"id": '},"new":{'}, "old": old, "new": new, "ts": 17, "tx": "1"}
        )
        for old, new in images
    ]
    found = row_images(pa.array(events, pa.binary()))
    for column, wanted in ((found.old, [old for old, _ in images]), (found.new, [new for _, new in images])):
        assert [None if image is None else json.loads(image) for image in column.to_pylist()] == wanted


@pytest.mark.parametrize(
    "tail", ['"ts":17,"tx":"1"', '"ts":17,"tx":"a\\"b"', '"ts":17,"tx":1', '"ts":"17","tx":"1"', '"tx":"1"', '"ts":17']
)
def test_a_row_ends_where_it_ends_whatever_stands_behind_it(tail: str) -> None:
    row = b'{"a":"},\\"ts\\":17,\\"tx\\":\\"1\\"}"}'
    event = b'{"op":"insert","key":{},"old":null,"new":%b,%b}' % (row, tail.encode())
    assert row_images(pa.array([event], pa.binary())).new.to_pylist() == [row]


def test_a_slice_of_a_column_is_read_as_what_it_is() -> None:
    events = pa.array([b'{"old":null,"new":{"n":%d}}' % number for number in range(5)], pa.binary()).slice(2, 2)
    assert row_images(events).new.to_pylist() == [b'{"n":2}', b'{"n":3}']


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{", b'{"old"', b'{"old":', b'{"old":{', b'{"old":"', b"{old:1}", b'{"new":{"a":1}']
)
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        row_images(pa.array([b"{}", value], pa.binary()))
