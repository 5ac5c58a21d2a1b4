"""The tree keeps the rules of the house: one name for one thing, the field's words, modules with a subject, pages that name
what exists."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tailrace"
# Generated from _async: the same names on purpose.
GENERATED = SOURCE / "client" / "_sync"

MODULES = sorted(file for file in SOURCE.rglob("*.py") if GENERATED not in file.parents)

# Words that we gave up for those of Kafka, PostgreSQL, Spark and NATS; the word to use stands beside each.
GIVEN_UP = {
    "attendant": "a word for what it does",
    "burial": "dead letter",
    "burials": "dead_letters",
    "concluder": "TransactionEnder",
    "courier": "batch_sender",
    "doomed": "pending dead letter",
    "fate": "outcome",
    "fates": "receipt_outcomes",
    "firstlook": "RequestGuard",
    "foresaw": "unexpected internal error",
    "foresight": "kernel_hints",
    "keeper": "lease_extender",
    "lobby": "ConnectionRegistry",
    "moments": "timestamps",
    "near_names": "suggestions",
    "pulse": "heartbeat",
    "settler": "ack_sender",
    "surroundings": "SharedContext",
    "tenure": "lease",
}
NO_SUBJECT = {"common", "helper", "helpers", "manager", "misc", "tool", "tools", "util", "utils"}

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def public_classes() -> Iterator[tuple[str, str]]:
    for file in MODULES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, str(file.relative_to(SOURCE))


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in public_classes():
        places[name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def given_up_words(text: str) -> set[str]:
    """Return the given-up words in a text, in identifiers of either style too."""
    whole = {word.lower() for word in re.findall(r"\w+", text)}
    parts = {part.lower() for part in _WORD.findall(text)}
    return (whole | parts) & GIVEN_UP.keys()


@pytest.mark.parametrize("text", ["class FirstLook", "self._pulse = 1", "# the courier waits", "GroupKeeper", "near_names"])
def test_given_up_words_are_found_in_identifiers_and_prose(text: str) -> None:
    assert given_up_words(text.replace("FirstLook", "firstlook"))


def test_given_up_words_are_not_used() -> None:
    used = {str(file.relative_to(ROOT)): sorted(words) for file in MODULES if (words := given_up_words(file.read_text()))}
    assert used == {}


def test_modules_have_a_subject() -> None:
    assert [str(file.relative_to(ROOT)) for file in MODULES if file.stem in NO_SUBJECT] == []


def test_modules_say_what_they_are_for() -> None:
    silent = [str(file.relative_to(ROOT)) for file in MODULES if not ast.get_docstring(ast.parse(file.read_text()))]
    assert silent == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "fast-paths.md", "glossary.md"])
def test_pages_about_the_code_name_classes_that_exist(page: str) -> None:
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})[`.(]", (ROOT / "docs" / page).read_text()))
    assert sorted(named - {name for name, _ in public_classes()}) == []
