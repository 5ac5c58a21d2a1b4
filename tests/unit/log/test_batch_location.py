"""Packed locations hold the same values as unpacked ones, and sort by offset."""

import pytest

from tailrace.log.batch_location import (
    BatchLocation,
    base_offset_of,
    bytes_before_of,
    index_above,
    index_holding,
    pack_location,
    running_timestamp_of,
    unpack_location,
    unpack_locations,
)

LOCATION = BatchLocation(2**40, 7, 300, 2**41, -5, 2**42, 2**43, 2**44)
BASES = (255, 256, 65_536)


def at(base: int) -> bytes:
    return pack_location(*LOCATION._replace(base_offset=base))


def test_every_field_comes_back() -> None:
    assert unpack_location(pack_location(*LOCATION)) == LOCATION


def test_single_fields_are_read_without_the_others() -> None:
    packed = pack_location(*LOCATION)
    assert (base_offset_of(packed), running_timestamp_of(packed), bytes_before_of(packed)) == (2**40, 2**43, 2**44)


def test_a_time_before_1970_is_read_as_it_was() -> None:
    assert running_timestamp_of(pack_location(*LOCATION._replace(running_timestamp=-1))) == -1


def test_concatenated_locations_are_unpacked() -> None:
    packed = b"".join(map(at, BASES))
    assert [location.base_offset for location in unpack_locations(packed)] == list(BASES)
    for offset in (0, 254, 255, 256, 257, 65_535, 65_536, 2**40):
        held = [number for number, base in enumerate(BASES) if base <= offset]
        assert [location.base_offset for location in unpack_locations(packed, offset)] == list(BASES[max(held, default=0) :])


@pytest.mark.parametrize(
    ("offset", "above", "holds"),
    [(0, 0, 0), (254, 0, 0), (255, 1, 0), (256, 2, 1), (65_535, 2, 1), (65_536, 3, 2), (2**50, 3, 2)],
)
def test_packed_locations_are_found_by_offset(offset: int, above: int, holds: int) -> None:
    locations = [at(base) for base in BASES]
    assert index_above(locations, offset) == above
    assert index_holding(locations, offset) == holds
