"""The numbers of SQL and of tables as Prometheus families."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.model.stats import Histogram, SqlStats

_PREFIX = "tailrace_"


class SqlCollector(Collector):
    def __init__(self, stats: SqlStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        yield _labelled("sql_statements", "Statements of SQL that ended well, by kind.", "statement", stats.statements)
        yield _counter("sql_failures", "Requests of SQL that ended with an error.", stats.failures)
        yield _labelled("table_rows", "Rows inserted, updated and deleted, by table.", "table", stats.rows)
        yield _counter("table_transactions", "Transactions that changed tables.", stats.transactions)
        yield _gauge("waiting_table_writes", "Transactions that wait for the tables' writer.", stats.waiting_writes)
        yield _gauge("waiting_table_write_bytes", "Bytes of these.", stats.waiting_write_bytes)
        yield _counter(
            "table_rebuilds",
            "Times that the file of the tables was damaged and was made again from the log.",
            stats.rebuilds,
        )
        yield _counter("table_checkpoints", "Checkpoints of tables' rows that were put into the log.", stats.checkpoints)
        rows = GaugeMetricFamily(
            _PREFIX + "table_checkpoint_rows",
            "Rows of checkpoints that are being taken which are in the log so far, by table.",
            labels=("table",),
        )
        for table, count in sorted(stats.checkpoint_rows.items()):
            rows.add_metric((table,), count)
        yield rows
        yield _gauge(
            "replayed_changes",
            "Changes that were applied to tables at the start, because their file lacked them.",
            stats.replayed_changes,
        )
        yield _histogram("table_write_seconds", "From the submission of a transaction to its answer.", stats.write_seconds)
        yield _histogram("table_transactions_per_commit", "Transactions that shared one commit.", stats.transactions_per_commit)


def _labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(_PREFIX + name, text, labels=(label,))
    for key, value in sorted(dict(values).items()):
        family.add_metric((key,), value)
    return family


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _histogram(name: str, text: str, held: Histogram) -> HistogramMetricFamily:
    bounds = [*(f"{bound:g}" for bound in held.bounds), "+Inf"]
    buckets = list(zip(bounds, map(float, accumulate(held.counts)), strict=True))
    return HistogramMetricFamily(_PREFIX + name, text, buckets=buckets, sum_value=held.total)
