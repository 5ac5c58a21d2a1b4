"""The page in Markdown: all bars in one table, and why some are missed. `web.py` has everything else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.report.text import (
    HOW_TO_READ,
    Judged,
    bar_text,
    common_machine,
    count_text,
    facts_text,
    judged,
    missed_first,
    occasion_text,
    verdict,
)
from bench.results import Result

_INTRODUCTION = (
    "Written by `make bench`; [how it is measured](guides/benchmarks.md). All figures, with every round, charts and remarks,"
    " are in `build/benchmarks.html`, which `make bench` and `python -m bench.render` write from `bench/results/`."
)
_BAR_HEADS = ("subject", "figure", "reached", "bar", "verdict")


def markdown_page(results: Sequence[Result], missing: Sequence[str], notes: str) -> str:
    parts = [_opening(results, missing, common_machine(results)), _bars(missed_first(judged(results))), notes.strip()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(results: Sequence[Result], missing: Sequence[str], machine: Mapping[str, str] | None) -> str:
    lines = [
        "# Benchmarks",
        _INTRODUCTION,
        occasion_text(results) + (f" {facts_text(machine)}." if machine else ""),
        f"**{count_text(judged(results))}.**",
        *(f"**{result.subject} failed**: {result.failure}" for result in results if result.failure),
        *(f"{result.subject} was left out: {result.left_out}" for result in results if result.left_out),
    ]
    if missing:
        lines.append(f"Not measured: {', '.join(missing)}.")
    return "\n\n".join([*lines, HOW_TO_READ])


def _bars(bars: Sequence[Judged]) -> str:
    rows = ((bar.title, bar.figure.name, bar.reached_text, bar_text(bar.figure), _strong_if_missed(bar.is_met)) for bar in bars)
    return "\n".join(["## Bars", "", *_table(_BAR_HEADS, rows)])


def _table(heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _strong_if_missed(is_met: bool | None) -> str:
    return "**missed**" if is_met is False else verdict(is_met)
