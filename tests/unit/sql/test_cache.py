"""Texts that are parsed once."""

from tailrace.model.limits import Limits
from tailrace.sql.cache import ParsedTexts


def test_the_same_text_is_parsed_once() -> None:
    texts = ParsedTexts(Limits())
    assert texts.parse("SELECT 1") is texts.parse("SELECT 1")


def test_the_oldest_texts_are_forgotten() -> None:
    texts = ParsedTexts(Limits(parsed_texts=2))
    first, second = texts.parse("SELECT 1"), texts.parse("SELECT 2")
    assert texts.parse("SELECT 1") is first
    texts.parse("SELECT 3")
    assert texts.parse("SELECT 1") is first
    assert texts.parse("SELECT 2") is not second


def test_long_texts_are_not_kept() -> None:
    texts = ParsedTexts(Limits())
    long = "SELECT 1 -- " + "x" * 5000
    assert texts.parse(long) is not texts.parse(long)
