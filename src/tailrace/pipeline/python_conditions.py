"""Decides in Python on changes for which a route can't be evaluated by Spark alone.

The task that writes the records of a step has its changes and the bits that Spark found for them, so nothing else has to pass
through Spark. A route is evaluated here only on changes that Spark leaves open:

    MATCHED   what Spark can compute is true: the parts of the condition that it leaves out decide, and the keys are made here
              if Spark can't make them
    FAILED    Spark has no result: the whole route is evaluated, so a change fails only where PostgreSQL would

Routes without an `AnalyzedRoute` are Spark's alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.pipeline.plan import FAILED, MATCHED, RouteBits
from tailrace.pipeline.routed_records import Places, RouteTarget
from tailrace.pipeline.steps import EvaluatedStep
from tailrace.sql.routes.evaluation import RouteEvaluator, RouteOutcome
from tailrace.wire.routing import partition_key


class PythonConditions:
    """The routes of a task that Python has a part in."""

    def __init__(self, targets: Sequence[RouteTarget]) -> None:
        self._routes = [
            _PythonRoute(
                target.bits,
                RouteEvaluator(target.python),
                has_own_keys=target.python.has_own_keys,
            )
            for target in targets
            if target.python is not None
        ]

    def decided(self, step: EvaluatedStep) -> EvaluatedStep:
        """Return the step with the final bits and keys of all routes."""
        results = step.results
        for route in self._routes:
            results = route.decided(step.changes, results)
        return step if results is step.results else step._replace(results=results)


class _PythonRoute(NamedTuple):
    bits: RouteBits
    evaluator: RouteEvaluator
    has_own_keys: bool

    def decided(self, changes: pa.RecordBatch, results: pa.RecordBatch) -> pa.RecordBatch:
        if self.has_own_keys:
            results = results.append_column(self.bits.key, pa.nulls(results.num_rows, pa.string()))
        word = results.column(self.bits.word).to_numpy()
        found = word >> self.bits.shift & (MATCHED | FAILED)
        places = np.flatnonzero(found if self.evaluator.decides_matches else found == FAILED)
        if not len(places):
            return results
        outcomes = self._outcomes(changes, places, (found[places] == FAILED).tolist())
        bits = np.array([FAILED if each.failed else MATCHED if each.matches else 0 for each in outcomes], np.int64)
        decided = word.copy()
        decided[places] ^= (found[places] ^ bits) << self.bits.shift
        results = _replaced(results, self.bits.word, pa.array(decided))
        return results if self.bits.key is None else self._with_keys(results, places, outcomes)

    def _outcomes(self, changes: pa.RecordBatch, places: Places, failed: list[bool]) -> list[RouteOutcome]:
        whole, rest = self.evaluator.whole, self.evaluator.rest
        rows = (changes.column(name).take(pa.array(places)).to_pylist() for name in ("old", "new"))
        return [(whole if is_failed else rest)(old, new) for is_failed, old, new in zip(failed, *rows, strict=True)]

    def _with_keys(self, results: pa.RecordBatch, places: Places, outcomes: Sequence[RouteOutcome]) -> pa.RecordBatch:
        """Put in the keys that were made here, among those that Spark has made."""
        made = np.zeros(results.num_rows, np.bool_)
        made[places] = [bool(each.key_values) for each in outcomes]
        keys = [partition_key(each.key_values).decode() for each in outcomes if each.key_values]
        column = pc.replace_with_mask(results.column(self.bits.key), pa.array(made), pa.array(keys, pa.string()))
        return _replaced(results, str(self.bits.key), column)


def _replaced(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
