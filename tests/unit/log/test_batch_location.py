"""Packed locations hold the same values as unpacked ones, and sort by offset."""

from struct import Struct

import pytest

from tailrace.log.batch_location import (
    BatchLocation,
    base_offset_of,
    bytes_before_of,
    index_above,
    index_holding,
    last_location,
    oldest_in_chunk,
    oldest_timestamp_of,
    pack_chunk,
    pack_location,
    running_timestamp_of,
    unpack_chunk,
    unpack_location,
)
from tailrace.model.commit import UNKNOWN_TIMESTAMP

LOCATION = BatchLocation(2**40, 7, 300, 2**41, -5, 2**42, 2**43, 2**44, -9)
OLD = Struct(">QIIQqQqQ")
"""A location of the formats before oldest timestamps were stored."""
BASES = (255, 256, 65_536)


def at(base: int) -> bytes:
    return pack_location(*LOCATION._replace(base_offset=base))


def test_every_field_comes_back() -> None:
    assert unpack_location(pack_location(*LOCATION)) == LOCATION


def test_single_fields_are_read_without_the_others() -> None:
    packed = pack_location(*LOCATION)
    assert (base_offset_of(packed), running_timestamp_of(packed), bytes_before_of(packed)) == (2**40, 2**43, 2**44)
    assert oldest_timestamp_of(packed) == -9


def test_a_time_before_1970_is_read_as_it_was() -> None:
    assert running_timestamp_of(pack_location(*LOCATION._replace(running_timestamp=-1))) == -1


@pytest.mark.parametrize("count", range(1, 30))
def test_a_chunk_holds_its_locations(count: int) -> None:
    locations = [LOCATION._replace(base_offset=number, oldest_timestamp=100 - number) for number in range(count)]
    chunk = pack_chunk([pack_location(*location) for location in locations])
    assert list(unpack_chunk(chunk)) == locations
    assert last_location(chunk) == locations[-1]
    assert oldest_in_chunk(chunk) == 101 - count


@pytest.mark.parametrize("count", range(1, 30))
def test_a_chunk_without_oldest_timestamps_is_read_as_one_whose_records_may_have_any(count: int) -> None:
    locations = [LOCATION._replace(base_offset=number, oldest_timestamp=UNKNOWN_TIMESTAMP) for number in range(count)]
    chunk = b"".join(OLD.pack(*location[:-1]) for location in locations)
    assert list(unpack_chunk(chunk)) == locations
    assert last_location(chunk) == locations[-1]
    assert oldest_in_chunk(chunk) == UNKNOWN_TIMESTAMP


@pytest.mark.parametrize("offset", [0, 254, 255, 256, 257, 65_535, 65_536, 2**40])
def test_a_chunk_is_unpacked_from_the_batch_that_holds_an_offset(offset: int) -> None:
    held = [number for number, base in enumerate(BASES) if base <= offset]
    wanted = list(BASES[max(held, default=0) :])
    new = pack_chunk([at(base) for base in BASES])
    old = b"".join(OLD.pack(*LOCATION._replace(base_offset=base)[:-1]) for base in BASES)
    assert [location.base_offset for location in unpack_chunk(new, offset)] == wanted
    assert [location.base_offset for location in unpack_chunk(old, offset)] == wanted


@pytest.mark.parametrize(
    ("offset", "above", "holds"),
    [(0, 0, 0), (254, 0, 0), (255, 1, 0), (256, 2, 1), (65_535, 2, 1), (65_536, 3, 2), (2**50, 3, 2)],
)
def test_packed_locations_are_found_by_offset(offset: int, above: int, holds: int) -> None:
    locations = [at(base) for base in BASES]
    assert index_above(locations, offset) == above
    assert index_holding(locations, offset) == holds
