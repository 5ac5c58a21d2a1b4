"""Steps as they come out of the plan, gathered: what is made of a step costs each topic something, however small the step is.

A source cuts its steps as if every route took every change, because it can't know. Here it is known, and steps that follow upon
each other become one as long as what their routes make of them is within the same bounds.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import invariant
from tailrace.model.pipeline import MarkMove
from tailrace.pipeline.change_rows import read_step


class JudgedStep(NamedTuple):
    move: MarkMove
    changes: pa.RecordBatch
    """As `CHANGES` of `change_rows.py` has them."""
    said: pa.RecordBatch
    """For each change the words and keys of its routes."""

    def split(self, pieces: int) -> "Iterator[JudgedStep]":
        """Steps that follow upon each other and are this one together, of about equal numbers of changes."""
        rows = self.changes.num_rows
        cuts = [rows * number // pieces for number in range(1, pieces)]
        source, before, after = self.move
        offsets = [before, *self.changes.column("offset").take(pa.array(cuts, pa.int64())).to_pylist(), after]
        for number, (first, stop) in enumerate(pairwise([0, *cuts, rows])):
            yield JudgedStep(
                MarkMove(source, offsets[number], offsets[number + 1]),
                self.changes.slice(first, stop - first),
                self.said.slice(first, stop - first),
            )


class GatheredSteps:
    def __init__(self, words: Sequence[str], most_bytes: int, most_rows: int) -> None:
        self._words = words
        """Columns with the bits of routes."""
        self._most_bytes = most_bytes
        self._most_rows = most_rows

    def of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[JudgedStep]:
        """As few steps as may be. One that is too large by itself stays as it is."""
        waiting: list[JudgedStep] = []
        rows_waiting = bytes_waiting = 0
        for step in judged_steps(rows):
            # A change that takes no route is held as long as any other.
            routes = np.maximum(self._routes_of(step), 1)
            more_rows, more_bytes = int(routes.sum()), int(routes @ _sizes(step.changes))
            fits = rows_waiting + more_rows <= self._most_rows and bytes_waiting + more_bytes <= self._most_bytes
            if waiting and not (fits and _follows(waiting[-1].move, step.move)):
                yield _as_one(waiting)
                waiting, rows_waiting, bytes_waiting = [], 0, 0
            waiting.append(step)
            rows_waiting += more_rows
            bytes_waiting += more_bytes
        if waiting:
            yield _as_one(waiting)

    def _routes_of(self, step: JudgedStep) -> npt.NDArray[np.int64]:
        """How many routes each change takes or fails."""
        routes = np.zeros(step.said.num_rows, np.int64)
        for word in self._words:
            routes += np.bitwise_count(step.said.column(word).to_numpy())
        return routes


def judged_steps(rows: Iterator[pa.RecordBatch]) -> Iterator[JudgedStep]:
    """Each step that these rows carry, with the rows before it."""
    waiting: list[pa.RecordBatch] = []
    for batch in rows:
        begin = 0
        steps = batch.column("step")
        for place in np.flatnonzero(steps.is_valid().to_numpy(zero_copy_only=False)).tolist():
            waiting.append(batch.slice(begin, place - begin))
            move, changes = read_step(steps[place].as_buffer())
            said = pa.concat_batches(waiting)
            invariant(
                changes.num_rows == said.num_rows,
                f"of a step of {changes.num_rows} changes {said.num_rows} were judged: {move}",
            )
            yield JudgedStep(move, changes, said)
            waiting, begin = [], place + 1
        waiting.append(batch.slice(begin))


def _sizes(changes: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each change."""
    sizes = np.zeros(changes.num_rows, np.int64)
    for name in ("key", "old", "new"):
        sizes += pc.binary_length(changes.column(name)).fill_null(0).to_numpy(zero_copy_only=False)
    return sizes


def _follows(move: MarkMove, following: MarkMove) -> bool:
    return move.source == following.source and move.after == following.before


def _as_one(steps: Sequence[JudgedStep]) -> JudgedStep:
    if len(steps) == 1:
        return steps[0]
    first, last = steps[0].move, steps[-1].move
    return JudgedStep(
        MarkMove(first.source, first.before, last.after),
        pa.concat_batches([step.changes for step in steps]),
        pa.concat_batches([step.said for step in steps]),
    )
