"""What the pages name exists: links, commands, tests, decisions."""

import re
from pathlib import Path

import pytest

from tests.docs.tables import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
SOURCE = re.compile(r"`([\w/]+\.py)`")
SOURCES = [f"/{path.relative_to(ROOT)}" for room in ("src", "bench", "chaos", "tools") for path in (ROOT / room).rglob("*.py")]


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, place in LINK.findall(page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not place or place in places_of(found), f"{target}#{place}"


def places_of(page: Path) -> set[str]:
    """What links can name in a page: its headings, as GitHub spells them."""
    headings = HEADING.findall(page.read_text())
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    named = [name for name in SOURCE.findall(page.read_text()) if not (ROOT / name).exists()]
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in SOURCES)] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_body_that_an_example_sends_is_sent_as_json(page: Path) -> None:
    assert re.findall(r"^.*\bcurl\b.* (?:-d|--data)\b.*$", page.read_text(), re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = TEST_ID.findall(page.read_text())
    assert [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists() or f"def {name}" not in (ROOT / file).read_text()
    ] == []


def test_every_promise_has_its_place_in_the_guarantees() -> None:
    headings = re.findall(r"^## (P\d+):", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE)
    assert headings == [f"P{number}" for number in (*range(1, 14), 16, 19)]


def test_every_promise_names_a_test() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "guarantees.md").read_text(), flags=re.MULTILINE)[1:]
    promises = [section for section in sections if re.match(r"P\d+:", section)]
    assert [promise.splitlines()[0] for promise in promises if not TEST_ID.search(promise)] == []


def test_every_make_target_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / "README.md").read_text())) - {"sure"}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= targets


def test_every_decision_is_in_the_index_and_numbers_are_used_once() -> None:
    folder = ROOT / "docs" / "decisions"
    files = sorted(file.name for file in folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text()
    assert [file for file in files if f"({file})" not in index] == []
    assert len({file[:4] for file in files}) == len(files)


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
