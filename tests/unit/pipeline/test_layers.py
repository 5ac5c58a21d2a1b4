"""By cursor, what is made of a row comes in the order of its changes, and what goes to a partition in the order of the log."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipeline.layers import layers_of

PARTITIONS = 3
TOPICS = 3


class Laid(NamedTuple):
    """A record as the commit has it."""

    place: int
    row: int
    topic: int
    partition: int


def laid(rows: list[int], records: list[set[tuple[int, int]]]) -> tuple[list[Laid], int]:
    """The records of changes in the order of their cursors, and how many layers there are."""
    keys = pa.array([b"%d" % row for row in rows], pa.binary())
    places: list[list[int]] = [[] for _ in range(TOPICS)]
    partitions: list[list[int]] = [[] for _ in range(TOPICS)]
    for place, made in enumerate(records):
        for topic, partition in sorted(made):
            places[topic].append(place)
            partitions[topic].append(partition)
    used = [topic for topic in range(TOPICS) if places[topic]]
    layers = layers_of(
        keys,
        [np.array(places[topic]) for topic in used],
        [np.array(partitions[topic], np.int32) for topic in used],
        [PARTITIONS] * len(used),
    )
    found = []
    for number, topic in enumerate(used):
        for at, (place, partition) in enumerate(zip(places[topic], partitions[topic], strict=True)):
            layer = 0 if layers is None else int(layers[number][at])
            found.append((layer, topic, partition, place))
    # As the encoder and the commit have it: by layer, topic and partition, and in a batch by the change.
    found.sort()
    count = 1 + max((layer for layer, *_ in found), default=0)
    return [Laid(place, rows[place], topic, partition) for _, topic, partition, place in found], count


changes = st.lists(
    st.tuples(st.integers(0, 3), st.sets(st.tuples(st.integers(0, TOPICS - 1), st.integers(0, PARTITIONS - 1)), max_size=4)),
    max_size=30,
)


@given(changes)
def test_rows_and_partitions_are_in_order(given: list[tuple[int, set[tuple[int, int]]]]) -> None:
    rows, records = [row for row, _ in given], [made for _, made in given]
    found, _ = laid(rows, records)
    assert sorted((each.place, each.topic, each.partition) for each in found) == sorted(
        (place, topic, partition) for place, made in enumerate(records) for topic, partition in made
    )
    for row in set(rows):
        of_row = [each.place for each in found if each.row == row]
        assert of_row == sorted(of_row)
    for slot in {(each.topic, each.partition) for each in found}:
        of_slot = [each.place for each in found if (each.topic, each.partition) == slot]
        assert of_slot == sorted(of_slot)


@given(st.lists(st.integers(0, 5), max_size=40))
def test_rows_that_stay_in_their_partition_need_one_layer(rows: list[int]) -> None:
    _, layers = laid(rows, [{(row % TOPICS, row % PARTITIONS)} for row in rows])
    assert layers == 1


def test_a_row_that_moves_once_costs_one_layer_however_many_rows_there_are() -> None:
    rows = [*range(1_000), 999]
    _, layers = laid(rows, [{(0, 2)} for _ in range(1_000)] + [{(0, 1)}])
    assert layers == 2
