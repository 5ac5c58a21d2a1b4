"""docs/reference/kafka-clients.md, whose sections are written by runs of everything in them."""

from pathlib import Path

from tests.compat.kinds import ROOT

PAGE = ROOT / "docs" / "reference" / "kafka-clients.md"
CLIENTS_HEADING = "## Clients"
TOOLS_HEADING = "## Tools"
SECURITY_HEADING = "## Secured servers"
_HEADINGS = (CLIENTS_HEADING, TOOLS_HEADING, SECURITY_HEADING)
_HEAD = """\
# Kafka clients and tools

What clients and tools of Kafka's ecosystem do with a real `tailrace serve`. This page is written by `make compat`; nothing here
is written by hand.

"✓" works. "n/a" the client can not express it. "**fails**" does not work today. "?" was not tried. The notes say why.
"""


def write_section(heading: str, text: str, page: Path = PAGE) -> None:
    """Replace one section, and keep the others as they are."""
    sections = {name: _section(page.read_text(), name) for name in _HEADINGS} if page.exists() else {}
    sections[heading] = text
    page.write_text("\n".join([_HEAD, *(f"{name}\n\n{sections[name]}" for name in _HEADINGS if sections.get(name))]))


def _section(page: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of this page."""
    _, found, rest = page.partition(f"{heading}\n\n")
    if not found:
        return ""
    ends = [at for other in _HEADINGS if (at := rest.find(f"\n{other}\n")) >= 0]
    return rest[: min(ends)] if ends else rest
