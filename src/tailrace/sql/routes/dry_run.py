"""The dry run: evaluates a route over changes in Python, with the same meaning as the pipeline."""

import time
from collections.abc import Sequence

from tailrace.model.errors import QueryLimitError
from tailrace.model.limits import Limits
from tailrace.model.table import Table
from tailrace.sql.routes.check import CheckedRoute, check_supported, conjuncts_of
from tailrace.sql.routes.evaluation import AnalyzedRoute, RouteEvaluator, RouteOutcome
from tailrace.wire.routing import ChangeEvent


def dry_run(checked: CheckedRoute, table: Table, changes: Sequence[ChangeEvent], limits: Limits) -> list[RouteOutcome]:
    """Return an outcome for each change. Takes up to `query_seconds`, so run it in a thread."""
    check_supported(checked)
    columns = {column.name: column.type for column in table.columns}
    route = RouteEvaluator(AnalyzedRoute(columns, conjuncts_of(checked.where), keys=checked.keys))
    outcomes = []
    end = time.monotonic() + limits.query_seconds
    for change in changes:
        outcomes.append(route.whole(change.old, change.new))
        if time.monotonic() > end:
            raise QueryLimitError(f"the dry run took more than {limits.query_seconds} s (query_seconds); simplify the route")
    return outcomes
