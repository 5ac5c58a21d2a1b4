"""The page of clients and tools keeps what a run does not write."""

from pathlib import Path

from tests.compat.grid import Cell
from tests.compat.page import CLIENTS_HEADING, TOOLS_HEADING, write_section
from tests.compat.tools.grid import Row, render
from tests.compat.tools.programs import CONNECT, STREAMS

INTRO = "What tools do."


def test_a_run_of_clients_keeps_the_section_of_tools_and_the_other_way_round(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_section(TOOLS_HEADING, "tools 1\n\n### Notes\n\n1. A note.\n", page)
    write_section(CLIENTS_HEADING, "clients 1\n\n### Notes\n\n1. Another.\n", page)
    write_section(TOOLS_HEADING, "tools 2\n", page)
    written = page.read_text()
    assert written.index("clients 1") < written.index("1. Another.") < written.index("tools 2")
    assert "tools 1" not in written
    write_section(TOOLS_HEADING, "tools 2\n", page)
    assert page.read_text() == written


def test_tools_are_listed_in_one_order_with_their_notes() -> None:
    rows = [
        Row(STREAMS, "joins", Cell("fails", "it waits for ever")),
        Row(CONNECT, "sinks", Cell("works")),
        Row(STREAMS, "words", Cell("not run", "it waits for ever.")),
    ]
    lines = render(INTRO, rows).splitlines()
    assert lines[:2] == [INTRO, ""]
    assert lines[-7:] == [
        f"| Kafka Connect | {CONNECT.version} | sinks | ✓ |",
        f"| Kafka Streams | {STREAMS.version} | joins | **fails** (1) |",
        f"| Kafka Streams | {STREAMS.version} | words | ? (1) |",
        "",
        "### Notes",
        "",
        "1. It waits for ever.",
    ]


def test_cases_of_one_test_are_a_row_that_works_if_all_do() -> None:
    rows = [
        Row(STREAMS, "joins", Cell("works")),
        Row(STREAMS, "joins", Cell("fails", "it waits for ever")),
        Row(STREAMS, "joins", Cell("works")),
    ]
    lines = [line for line in render(INTRO, rows).splitlines() if "joins" in line]
    assert lines == [f"| Kafka Streams | {STREAMS.version} | joins | **fails** (1) |"]
