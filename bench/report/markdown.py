"""The page in Markdown: all bars in one table, then section by section what was measured, when and how."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from bench.curves import Curve
from bench.figures import Figure, Section
from bench.profile import Profile, Share
from bench.report.text import (
    HOW_TO_READ,
    Judged,
    bar_text,
    circumstances_text,
    clients_alone_text,
    common_machine,
    count_text,
    facts_text,
    judged,
    missed_first,
    number,
    occasion_text,
    spread,
    verdict,
    with_unit,
)
from bench.results import Result

_FIGURE_HEADS = ("figure", "Tailrace", "peer", "its figure", "ratio", "bar", "verdict")
_BAR_HEADS = ("subject", "figure", "reached", "bar", "verdict")


def markdown_page(results: Sequence[Result], missing: Sequence[str], notes: str, web_page: str) -> str:
    machine = common_machine(results)
    parts = [_opening(results, missing, machine, web_page), _bars(missed_first(judged(results)))]
    profiles = all_profiles(results)
    parts += [
        _section(result, result.section, machine, profiles) for result in results if result.section and result.section.figures
    ]
    parts.append(notes.strip())
    return "\n\n".join(parts) + "\n"


def all_profiles(results: Sequence[Result]) -> Sequence[Profile]:
    return [profile for result in results if result.section for profile in result.section.profiles]


def _opening(results: Sequence[Result], missing: Sequence[str], machine: Mapping[str, str] | None, web_page: str) -> str:
    lines = [
        "# Benchmarks",
        f"Written by `make bench`; [how it is measured](guides/benchmarks.md), [the same page with charts]({web_page}).",
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


def _section(result: Result, section: Section, machine: Mapping[str, str] | None, profiles: Sequence[Profile]) -> str:
    lines = [f"## {section.title}", "", f"*{circumstances_text(result.circumstances, machine)}*", "", section.text, ""]
    lines += _table(_FIGURE_HEADS, map(_figure, section.figures))
    for _, alike in groupby(section.curves, key=lambda curve: [curve.grows, *(point.at for point in curve.points)]):
        lines += ["", *_curves(list(alike))]
    alone = clients_alone_text(section.figures)
    if alone:
        lines += ["", *(f"- {line}" for line in alone)]
    if section.remarks:
        lines += ["", *(f"- {remark}" for remark in section.remarks)]
    for profile in profiles:
        if profile.beside == result.subject:
            lines += ["", *_profile(profile)]
    return "\n".join(lines)


def _figure(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        with_unit(spread(figure.ours), figure.unit),
        figure.peer,
        with_unit(spread(figure.peers), figure.unit) if figure.peers else "",
        f"**{spread(figure.ratio)}**" if figure.ratio else "",
        bar_text(figure),
        _strong_if_missed(figure.is_met),
    )


def _curves(curves: Sequence[Curve]) -> Iterator[str]:
    """Curves over the same points, in one table."""
    heads = (curves[0].grows, *(number(point.at) for point in curves[0].points), "slope")
    return _table(heads, ((_named(curve), *_medians(curve), f"{curve.slopes.median:.2f}") for curve in curves))


def _named(curve: Curve) -> str:
    return f"{curve.name}, {curve.unit}"


def _medians(curve: Curve) -> Iterator[str]:
    return (number(point.cost.median) for point in curve.points)


def _profile(profile: Profile) -> Iterator[str]:
    yield f"Sampled, {profile.summary}:"
    yield ""
    yield f"- by room: {_shares(profile.rooms)}"
    yield f"- by function: {_shares(profile.functions)}"


def _shares(shares: Sequence[Share]) -> str:
    return ", ".join(f"`{each.name}` {each.share:.0%}" for each in shares)


def _table(heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _strong_if_missed(is_met: bool | None) -> str:
    return "**missed**" if is_met is False else verdict(is_met)
