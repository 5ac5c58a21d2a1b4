"""The page in HTML: each section with its figures, charts and circumstances, in one file that loads nothing else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

from bench.figures import Figure, Profile, Section, Share
from bench.report.charts import bars_chart, curve_chart, figures_charts
from bench.report.markdown import (
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
    occasion_text,
    spread,
    verdict,
    with_unit,
)
from bench.results import Result

_STYLE = Path(__file__).with_name("style.css")
_LEGEND = (
    '<p class="legend"><span class="key ours"></span>Tailrace <span class="key peer"></span>its peer'
    ' <span class="key spread"></span>lowest to highest round <span class="key bar"></span>bar</p>'
)


def web_page(results: Sequence[Result], missing: Sequence[str], notes: str) -> str:
    return "\n".join(_page(results, missing, MarkdownIt("commonmark", {"html": False}).enable("table"), notes))


def _page(results: Sequence[Result], missing: Sequence[str], markdown: MarkdownIt, notes: str) -> Iterator[str]:
    machine = common_machine(results)
    bars = judged(results)
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Tailrace benchmarks</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>\n{_STYLE.read_text()}</style>\n</head>\n<body>\n<main>\n<h1>Benchmarks</h1>"
    yield f"<p>{escape(occasion_text(results))} {escape(facts_text(machine)) if machine else ''}</p>"
    yield from _troubles(results, missing)
    yield f'<p class="count">{count_text(bars)}</p>'
    yield f"<p>{escape(HOW_TO_READ)}</p>"
    yield _contents(results)
    if bars:
        yield '<section id="bars"><h2>Bars</h2>'
        yield f"<figure>{bars_chart(bars)}</figure>"
        yield f"<details><summary>As a table, missed ones first</summary>{_bars_table(missed_first(bars))}</details></section>"
    profiles = [profile for result in results if result.section for profile in result.section.profiles]
    for result in results:
        if result.section is not None and result.section.figures:
            beside = [profile for profile in profiles if profile.beside == result.subject]
            yield from _section(result, result.section, machine, markdown, beside)
    yield f"<section>{markdown.render(notes)}</section>\n</main>\n</body>\n</html>\n"


def _troubles(results: Sequence[Result], missing: Sequence[str]) -> Iterator[str]:
    for result in results:
        if result.failure:
            yield f'<p class="failure"><strong>{escape(result.subject)} failed:</strong> {escape(result.failure)}</p>'
        if result.left_out:
            yield f"<p>{escape(result.subject)} was left out: {escape(result.left_out)}</p>"
    if missing:
        yield f"<p>Not measured: {escape(', '.join(missing))}.</p>"


def _contents(results: Sequence[Result]) -> str:
    links = (
        f'<li><a href="#{escape(result.subject)}">{_inline(result.section.title)}</a></li>'
        for result in results
        if result.section is not None and result.section.figures
    )
    return f"<nav><ul>{''.join(links)}</ul></nav>"


def _section(
    result: Result, section: Section, machine: Mapping[str, str] | None, markdown: MarkdownIt, profiles: Sequence[Profile]
) -> Iterator[str]:
    yield f'<section id="{escape(result.subject)}"><h2>{_inline(section.title)}</h2>'
    yield f'<p class="occasion">{escape(circumstances_text(result.circumstances, machine))}</p>'
    yield markdown.render(section.text)
    charts = figures_charts(section.figures)
    if charts:
        yield f"{_LEGEND}<figure>{''.join(charts)}</figure>"
    if section.curves:
        yield f'<figure class="curves">{"".join(map(curve_chart, section.curves))}</figure>'
    yield f"<details><summary>As a table</summary>{_figures_table(section.figures)}</details>"
    for lines in (clients_alone_text(section.figures), section.remarks):
        if lines:
            yield markdown.render("\n".join(f"- {line}" for line in lines))
    for profile in profiles:
        yield _profile(profile)
    yield "</section>"


def _bars_table(bars: Sequence[Judged]) -> str:
    rows = (
        (_inline(bar.title), _inline(bar.figure.name), _inline(bar.reached_text), bar_text(bar.figure), _verdict(bar.is_met))
        for bar in bars
    )
    return _table(("subject", "figure", "reached", "bar", "verdict"), rows)


def _figures_table(figures: Sequence[Figure]) -> str:
    return _table(("figure", "Tailrace", "peer", "its figure", "ratio", "bar", "verdict"), map(_figure, figures))


def _figure(figure: Figure) -> tuple[str, ...]:
    return (
        _inline(figure.name),
        escape(with_unit(spread(figure.ours), figure.unit)),
        _inline(figure.peer),
        escape(with_unit(spread(figure.peers), figure.unit)) if figure.peers else "",
        f"<strong>{spread(figure.ratio)}</strong>" if figure.ratio else "",
        escape(bar_text(figure)),
        _verdict(figure.is_met),
    )


def _profile(profile: Profile) -> str:
    return (
        f"<details><summary>Sampled, {_inline(profile.summary)}</summary>"
        f'<div class="profile">{_shares("room", profile.rooms)}{_shares("function", profile.functions)}</div></details>'
    )


def _shares(head: str, shares: Sequence[Share]) -> str:
    return _table((head, "self time"), ((f"<code>{escape(each.name)}</code>", f"{each.share:.1%}") for each in shares))


def _table(heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _verdict(is_met: bool | None) -> str:
    return f'<span class="verdict {verdict(is_met)}">{verdict(is_met)}</span>'


def _inline(text: str) -> str:
    """Render code between backticks, and nothing else of Markdown."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))
