"""Changes with the routes that they take, as records: payloads, keys and headers, for many at once.

The meaning is that of `wire/routing.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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

Places = npt.NDArray[np.int64]


class RouteTarget(NamedTuple):
    """What a task must know of a route."""

    id: int
    topic_id: TopicId
    topic: str
    table: str
    payload: PayloadMode
    verdict: RouteBits


class RouteMatches(NamedTuple):
    """Changes and routes, as columns of one length: in the order of the changes, and of the routes of one change."""

    places: Places
    """Of the changes in their step."""
    routes: npt.NDArray[np.int64]
    """Their ids."""

    def where(self, mask: npt.NDArray[np.bool_]) -> "RouteMatches":
        return RouteMatches(self.places[mask], self.routes[mask])


class RouteResults:
    """What the routes have said about the changes of a step."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def hits(self, targets: Sequence[RouteTarget], bits: int) -> RouteMatches:
        """Where these routes have said so."""
        if len(targets) == 1:
            (target,) = targets
            places = np.flatnonzero(self._said(target, bits))
            return RouteMatches(places, np.full(len(places), target.id))
        places, numbers = np.nonzero(np.column_stack([self._said(target, bits) for target in targets]))
        return RouteMatches(places, np.array([target.id for target in targets])[numbers])

    def keys(self, target: RouteTarget, places: Places) -> pa.Array | None:
        """The keys that a route gives the records of these changes, if it does."""
        column = target.verdict.key
        return None if column is None else self._rows.column(column).take(pa.array(places)).cast(pa.binary())

    def _said(self, target: RouteTarget, bits: int) -> npt.NDArray[np.bool_]:
        word = self._rows.column(target.verdict.word).to_numpy()
        said: npt.NDArray[np.bool_] = (word >> target.verdict.shift) & (MATCHED | FAILED) == bits
        return said


class MatchColumns:
    """Some hits, with what their changes and routes say: each column is made when it is asked for."""

    def __init__(self, hits: RouteMatches, changes: pa.RecordBatch, targets: Mapping[int, RouteTarget]) -> None:
        self._hits = hits
        self._changes = changes
        self._places = None if len(hits.places) == changes.num_rows and _is_contiguous(hits.places) else pa.array(hits.places)
        self._targets = [targets[route] for route in np.unique(hits.routes).tolist()]

    def change(self, name: str) -> pa.Array:
        """A column of the changes."""
        column = self._changes.column(name)
        return column if self._places is None else column.take(self._places)

    def records(self, verdicts: RouteResults) -> RecordRows:
        values, modes = self._payloads()
        return RecordRows(values, self._keys(verdicts), self.change("committed_ms"), self.headers(modes))

    def headers(self, modes: pa.Array) -> pa.Array:
        cursors = self.change("cursor").cast(pa.string())
        columns = {
            "source_table": self._by_route({target.id: target.table for target in self._targets}),
            "op": pa.array(OPERATIONS).take(self.change("op")),
            "timestamp": self.change("committed_ms").cast(pa.string()),
            "payload_mode": modes,
            MESSAGE_ID_HEADER: pc.binary_join_element_wise(cursors, pa.array(self._hits.routes).cast(pa.string()), "-"),
            "cursor": cursors,
        }
        return _header_lists(columns, len(self._hits.places))

    def events(self) -> Iterator[ChangeEvent]:
        names = ("op", "key", "old", "new", "committed_ms", "cursor")
        for op, key, old, new, at, cursor in zip(*(self.change(name).to_pylist() for name in names), strict=True):
            yield ChangeEvent(OPERATIONS[op], key, old, new, at, Cursor(cursor))

    def _keys(self, verdicts: RouteResults) -> pa.Array:
        """The key of the change, or the one that the route has given."""
        keys = self.change("key")
        for target in self._targets:
            given = verdicts.keys(target, self._hits.places)
            if given is not None:
                keys = given if len(self._targets) == 1 else pc.if_else(pa.array(self._hits.routes == target.id), given, keys)
        return keys

    def _payloads(self) -> tuple[pa.Array, pa.Array]:
        """Payloads and how each was made."""
        modes = {target.id: target.payload for target in self._targets}
        first, *rest = sorted(set(modes.values()))
        found = self._payload(first)
        for mode in rest:
            of_mode = np.isin(self._hits.routes, [route for route, each in modes.items() if each == mode])
            found = pc.if_else(pa.array(of_mode), self._payload(mode), found)
        return found, self._by_route(modes)

    def _payload(self, mode: PayloadMode) -> pa.Array:
        if mode == "key":
            return self.change("key")
        if mode == "full":
            new = self.change("new")
            return pc.coalesce(new, self.change("old")) if new.null_count else new
        return pa.array([payload_of(change, "diff") for change in self.events()], pa.binary())

    def _by_route(self, said: Mapping[int, str]) -> pa.Array:
        """What is said of the route of each hit."""
        if len(set(said.values())) == 1:
            return pa.repeat(next(iter(said.values())), len(self._hits.places))
        return pa.array(list(said.values())).take(pa.array(np.searchsorted(list(said), self._hits.routes)))


def _is_contiguous(places: Places) -> bool:
    """Whether these are all, one after another."""
    return len(places) == 0 or bool((np.diff(places) == 1).all())


def _header_lists(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """A list of all these headers for each row."""
    count = len(columns)
    values = pa.concat_arrays([column.cast(pa.binary()) for column in columns.values()])
    # From one column after another to one row after another.
    order = (np.arange(count) * rows)[None, :] + np.arange(rows)[:, None]
    names = pa.array(list(columns)).take(pa.array(np.tile(np.arange(count), rows)))
    pairs = pa.StructArray.from_arrays([names, values.take(pa.array(order.ravel()))], ["name", "value"])
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * count), pairs)
