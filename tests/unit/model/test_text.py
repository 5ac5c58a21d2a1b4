"""Values as text."""

from tailrace.model.text import counted, csv_field, distinct_names, text_or_hex


def test_bytes_that_are_not_utf8_are_shown_as_hexadecimal_digits() -> None:
    assert text_or_hex(None) is None
    assert text_or_hex(b"") == ""
    assert text_or_hex("naïve".encode()) == "naïve"
    assert text_or_hex(b"\xff\x0a") == "\\xff0a"


def test_null_and_the_empty_text_differ_in_csv() -> None:
    assert (csv_field(None), csv_field(""), csv_field('a "b"'), csv_field(1)) == ("", '""', '"a ""b"""', "1")


def test_names_that_come_twice_are_numbered() -> None:
    assert distinct_names(["a", "a", "b", "a"]) == ["a", "a_2", "b", "a_3"]


def test_a_noun_follows_its_number() -> None:
    assert (counted(1, "message"), counted(2000, "message")) == ("1 message", "2,000 messages")
