"""The page that a run writes."""

from collections.abc import Mapping, Sequence

from bench.figures import Bar, Figure, Section
from bench.measure import Samples

_SENSES = {"at least": "≥", "at most": "≤", "under": "<"}
_HEADS = ("figure", "Tailrace", "peer", "its figure", "ratio", "bar", "verdict")
_TABLE_HEAD = f"| {' | '.join(_HEADS)} |\n|{'---|' * len(_HEADS)}"


def render(sections: Sequence[Section], facts: Mapping[str, str], *, is_full: bool, notes: str) -> str:
    parts = [_opening(sections, facts, is_full)]
    parts += [_section(section) for section in sections]
    parts.append(notes.strip())
    return "\n\n".join(parts) + "\n"


def summary(sections: Sequence[Section]) -> str:
    """How many bars are met, and which are not."""
    judged = [(section, figure) for section in sections for figure in section.figures if figure.bar is not None]
    missed = [f"{section.title}: {figure.name}" for section, figure in judged if not figure.is_met]
    text = f"{len(judged) - len(missed)} of {len(judged)} bars met"
    return f"{text}; missed: {'; '.join(missed)}." if missed else f"{text}."


def _opening(sections: Sequence[Section], facts: Mapping[str, str], is_full: bool) -> str:
    about = " · ".join(f"{name} {value}" for name, value in facts.items())
    return f"""# Benchmarks

Written by `make bench`{"" if is_full else ", from a run with little data: take it as a hint"}.

{about}

**{summary(sections)}**

Each line is the median of several rounds, with the lowest and the highest in brackets. Tailrace and its peer do the same work
in turn; the ratio is taken within each round. Lines without a bar are for information. After every measurement
the records are counted and compared with what was acknowledged; a record that is lost, doubled or out of place ends the run
with exit code 1, and no page is written."""


def _section(section: Section) -> str:
    lines = [f"## {section.title}", "", section.text, "", _TABLE_HEAD]
    lines += [_row(figure) for figure in section.figures]
    if section.remarks:
        lines += ["", *(f"- {remark}" for remark in section.remarks)]
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    cells = [
        figure.name,
        f"{_spread(figure.ours)} {figure.unit}",
        figure.peer,
        f"{_spread(figure.peers)} {figure.unit}" if figure.peers else "",
        f"**{_spread(figure.ratio)}**" if figure.ratio else "",
        _bar(figure, figure.bar),
        {True: "met", False: "**missed**", None: ""}[figure.is_met],
    ]
    return f"| {' | '.join(cells)} |"


def _bar(figure: Figure, bar: Bar | None) -> str:
    if bar is None:
        return ""
    return f"{_SENSES[bar.sense]} {_number(bar.limit)}" + ("" if figure.peers else f" {figure.unit}")


def _spread(samples: Samples) -> str:
    return f"{_number(samples.median)} ({_number(samples.lowest)}-{_number(samples.highest)})"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
