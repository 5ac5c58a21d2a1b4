"""Results as text for both pages, and the page in Markdown: all bars in one table, and why some are missed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.figures import Bar, Figure, Samples, ratios
from bench.results import Circumstances, Result

_SENSES = {"at least": "≥", "at most": "≤", "under": "<"}

HOW_TO_READ = """Each line is the median of several rounds, with the lowest and the highest in brackets. Tailrace and its peer
do the same work in turn; the ratio is taken within each round. Lines without a bar are for information. After every measurement
the records are counted and compared with what was acknowledged: a subject in which a record was lost, doubled or out of place
has failed and shows no figures. The client alone is the same client at a server that does nothing; that is to compare with,
and no bound. A slope is that of a cost on logarithmic axes: 0 stays what it is, 1 grows in proportion."""


class Judged(NamedTuple):
    """A figure with a bar, and its value relative to it."""

    subject: str
    title: str
    figure: Figure
    bar: Bar

    @property
    def is_met(self) -> bool:
        return self.bar.admits(self.reached.median)

    @property
    def reached(self) -> Samples:
        return self.figure.ratio or self.figure.ours

    @property
    def reached_text(self) -> str:
        if self.figure.peers is None:
            return with_unit(spread(self.figure.ours), self.figure.unit)
        alone = self.figure.alone_ratio
        beside = f"; the client alone {spread(alone)}" if alone is not None else ""
        return f"{spread(self.reached)} of {self.figure.peer}{beside}"


def judged(results: Sequence[Result]) -> list[Judged]:
    """Return all figures with bars, in the order of the page."""
    return list(_judged(results))


def missed_first(bars: Sequence[Judged]) -> list[Judged]:
    return sorted(bars, key=lambda bar: bar.is_met)


def summary(results: Sequence[Result]) -> str:
    """Return how many bars are met, which are not, and what failed."""
    bars = judged(results)
    missed = [f"{bar.title}: {bar.figure.name}" for bar in bars if not bar.is_met]
    text = f"{count_text(bars)}; missed: {'; '.join(missed)}." if missed else f"{count_text(bars)}."
    failed = [result.subject for result in results if result.failure]
    return f"{text} Failed: {', '.join(failed)}." if failed else text


def count_text(bars: Sequence[Judged]) -> str:
    return f"{sum(bar.is_met for bar in bars)} of {len(bars)} bars met"


def circumstances_text(found: Circumstances, common_machine: Mapping[str, str] | None) -> str:
    """Return when and how a subject was measured, and on which machine unless that is said once for all."""
    scale = "Full run" if found.scale == "full" else "Quick run, a hint at most"
    text = (
        f"{scale}: {found.began}, commit {found.commit}, load {found.load_before} before and {found.load_after} after,"
        f" {found.seconds:.0f} s."
    )
    return text if common_machine is not None else f"{text} {facts_text(found.machine)}."


def common_machine(results: Sequence[Result]) -> Mapping[str, str] | None:
    """Return the facts that all results share; `None` if there were several machines or versions."""
    machines = [dict(result.circumstances.machine) for result in results]
    return machines[0] if machines and all(machine == machines[0] for machine in machines) else None


def facts_text(facts: Mapping[str, str]) -> str:
    return " · ".join(f"{name} {value}" for name, value in facts.items())


def occasion_text(results: Sequence[Result]) -> str:
    """Return the time span and the commits of all results."""
    if not results:
        return "Nothing is measured yet."
    times = sorted(result.circumstances.began for result in results)
    commits = list(dict.fromkeys(result.circumstances.commit for result in results))
    when = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    code = f"commit {commits[0]}" if len(commits) == 1 else f"{len(commits)} commits; each section names its own"
    quick = sum(result.circumstances.scale == "quick" for result in results)
    note = f"; {quick} of {len(results)} subjects are from quick runs" if quick else ""
    return f"Measured {when}, {code}{note}."


def bar_text(figure: Figure) -> str:
    if figure.bar is None:
        return ""
    limit = f"{_SENSES[figure.bar.sense]} {number(figure.bar.limit)}"
    return limit if figure.peers else with_unit(limit, figure.unit)


def verdict(is_met: bool | None) -> str:
    return {True: "met", False: "missed", None: ""}[is_met]


def spread(samples: Samples) -> str:
    between = "-" if samples.lowest >= 0 else " to "
    return f"{number(samples.median)} ({number(samples.lowest)}{between}{number(samples.highest)})"


def clients_alone_text(figures: Sequence[Figure]) -> list[str]:
    """Return, for each figure that has it, what the client alone reaches, beside the peer, the bar and Tailrace."""
    return [_client_alone_text(figure, figure.alone) for figure in figures if figure.alone is not None]


def with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _client_alone_text(figure: Figure, alone: Samples) -> str:
    text = f"{figure.name}: the client alone {with_unit(spread(alone), figure.unit)}"
    if figure.alone_ratio is not None:
        text += f", {spread(figure.alone_ratio)} of {figure.peer}"
        if figure.bar is not None and not figure.bar.admits(figure.alone_ratio.median):
            text += ", which is short of the bar"
    return f"{text}; Tailrace reaches {spread(ratios(figure.ours, alone))} of it."


def _judged(results: Sequence[Result]) -> Iterator[Judged]:
    for result in results:
        if result.section is not None:
            for figure in result.section.figures:
                if figure.bar is not None:
                    yield Judged(result.subject, result.section.title, figure, figure.bar)


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
