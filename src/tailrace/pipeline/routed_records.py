"""Changes and the routes that match them, as records: payloads, keys and headers, for many at once.

`wire/routing.py` defines what they mean, for one change at a time. `tests/unit/pipeline/test_routed_steps.py` holds both equal.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.ids import Cursor, TopicId
from tailrace.model.record import MESSAGE_ID_HEADER
from tailrace.model.route import PayloadMode
from tailrace.pipeline.plan import FAILED, MATCHED, OPERATIONS, RouteBits
from tailrace.pipeline.staging import RecordRows
from tailrace.wire.routing import ChangeEvent, payload_of

if TYPE_CHECKING:
    from tailrace.sql.routes.evaluation import AnalyzedRoute

Places = npt.NDArray[np.int64]


class RouteTarget(NamedTuple):
    """What a task has to know of a route."""

    id: int
    topic_id: TopicId
    topic: str
    table: str
    payload: PayloadMode
    bits: RouteBits
    python: "AnalyzedRoute | None" = None
    """What Python evaluates of it."""


class RouteMatches(NamedTuple):
    """Pairs of a change and a route, as columns, in the order of the changes and then of the routes."""

    places: Places
    """The index of the change in its step."""
    routes: npt.NDArray[np.int64]
    """The id of the route."""

    def where(self, mask: npt.NDArray[np.bool_]) -> "RouteMatches":
        return RouteMatches(self.places[mask], self.routes[mask])


class RouteResults:
    """The results of the routes for the changes of a step."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def matches(self, targets: Sequence[RouteTarget], bits: int) -> RouteMatches:
        """Return the changes for which these routes have this result, `MATCHED` or `FAILED`."""
        if len(targets) == 1:
            (target,) = targets
            places = np.flatnonzero(self._has_bits(target, bits))
            return RouteMatches(places, np.full(len(places), target.id))
        places, numbers = np.nonzero(np.column_stack([self._has_bits(target, bits) for target in targets]))
        return RouteMatches(places, np.array([target.id for target in targets])[numbers])

    def keys(self, target: RouteTarget, places: Places) -> pa.Array | None:
        """Return the keys that a route gives the records of these changes; `None` if it gives none."""
        column = target.bits.key
        return None if column is None else self._rows.column(column).take(pa.array(places)).cast(pa.binary())

    def _has_bits(self, target: RouteTarget, bits: int) -> npt.NDArray[np.bool_]:
        word = self._rows.column(target.bits.word).to_numpy()
        found: npt.NDArray[np.bool_] = (word >> target.bits.shift) & (MATCHED | FAILED) == bits
        return found


class MatchColumns:
    """The columns of matches, from their changes and routes. Each is built when it is asked for."""

    def __init__(self, matches: RouteMatches, changes: pa.RecordBatch, targets: Mapping[int, RouteTarget]) -> None:
        self._matches = matches
        self._changes = changes
        self._places = (
            None if len(matches.places) == changes.num_rows and _is_contiguous(matches.places) else pa.array(matches.places)
        )
        self._targets = [targets[route] for route in np.unique(matches.routes).tolist()]

    def change(self, name: str) -> pa.Array:
        """Return a column of the changes."""
        column = self._changes.column(name)
        return column if self._places is None else column.take(self._places)

    def records(self, results: RouteResults) -> RecordRows:
        values, modes = self._payloads()
        return RecordRows(values, self._keys(results), self.change("committed_ms"), self.headers(modes))

    def headers(self, modes: pa.Array) -> pa.Array:
        cursors = self.change("cursor").cast(pa.string())
        columns = {
            "source_table": self._by_route({target.id: target.table for target in self._targets}),
            "op": pa.array(OPERATIONS).take(self.change("op")),
            "timestamp": self.change("committed_ms").cast(pa.string()),
            "payload_mode": modes,
            MESSAGE_ID_HEADER: pc.binary_join_element_wise(cursors, pa.array(self._matches.routes).cast(pa.string()), "-"),
            "cursor": cursors,
        }
        return _header_lists(columns, len(self._matches.places))

    def events(self) -> Iterator[ChangeEvent]:
        names = ("op", "key", "old", "new", "committed_ms", "cursor")
        for op, key, old, new, at, cursor in zip(*(self.change(name).to_pylist() for name in names), strict=True):
            yield ChangeEvent(OPERATIONS[op], key, old, new, at, Cursor(cursor))

    def _keys(self, results: RouteResults) -> pa.Array:
        """Return the key that the route gives, or else the key of the change."""
        keys = self.change("key")
        for target in self._targets:
            given = results.keys(target, self._matches.places)
            if given is not None:
                keys = (
                    given if len(self._targets) == 1 else pc.if_else(pa.array(self._matches.routes == target.id), given, keys)
                )
        return keys

    def _payloads(self) -> tuple[pa.Array, pa.Array]:
        """Return payloads and the payload mode of each."""
        modes = {target.id: target.payload for target in self._targets}
        first, *rest = sorted(set(modes.values()))
        found = self._payload(first)
        for mode in rest:
            of_mode = np.isin(self._matches.routes, [route for route, each in modes.items() if each == mode])
            found = pc.if_else(pa.array(of_mode), self._payload(mode), found)
        return found, self._by_route(modes)

    def _payload(self, mode: PayloadMode) -> pa.Array:
        if mode == "key":
            return self.change("key")
        if mode == "full":
            new = self.change("new")
            return pc.coalesce(new, self.change("old")) if new.null_count else new
        return pa.array([payload_of(change, "diff") for change in self.events()], pa.binary())

    def _by_route(self, values: Mapping[int, str]) -> pa.Array:
        """Return a column with the value of each match's route. `values` are in the order of route ids."""
        if len(set(values.values())) == 1:
            return pa.repeat(next(iter(values.values())), len(self._matches.places))
        return pa.array(list(values.values())).take(pa.array(np.searchsorted(list(values), self._matches.routes)))


def _is_contiguous(places: Places) -> bool:
    """Return whether the indices have no gap."""
    return len(places) == 0 or bool((np.diff(places) == 1).all())


def _header_lists(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return for each row a list of all these headers."""
    count = len(columns)
    values = pa.concat_arrays([column.cast(pa.binary()) for column in columns.values()])
    # The values are concatenated by column and needed by row.
    order = (np.arange(count) * rows)[None, :] + np.arange(rows)[:, None]
    names = pa.array(list(columns)).take(pa.array(np.tile(np.arange(count), rows)))
    pairs = pa.StructArray.from_arrays([names, values.take(pa.array(order.ravel()))], ["name", "value"])
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * count), pairs)
