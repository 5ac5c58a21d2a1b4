"""The types and values of PostgreSQL become column types and JSON. `tests/integration/capture` asks PostgreSQL itself."""

import pytest

from tailrace.capture.column_types import PostgresType, cell_encoder, column_type, is_built_in, unmapped_text
from tailrace.model.errors import InvalidRequestError
from tailrace.model.table import ColumnKind, ColumnType


def test_types_that_nobody_looked_up_are_text() -> None:
    assert column_type(999_999, -1, {}) == ColumnType("text")
    assert not is_built_in(999_999)
    assert is_built_in(23)
    assert is_built_in(1007)


def test_a_domain_is_its_base_type_however_deep() -> None:
    types = {
        1: PostgresType(1, "a", "domain", base_oid=2),
        2: PostgresType(2, "b", "domain", base_oid=1043, base_modifier=14),
        3: PostgresType(3, "_a", "array", element_oid=1),
    }
    assert str(column_type(1, -1, types)) == "varchar(10)"
    assert str(column_type(3, -1, types)) == "varchar(10)[]"


def test_arrays_whose_elements_are_not_separated_by_commas_are_text() -> None:
    types = {1: PostgresType(1, "_a", "array", element_oid=2), 2: PostgresType(2, "a", delimiter="|")}
    assert column_type(1, -1, types) == ColumnType("text")
    assert column_type(1020, -1, {}) == ColumnType("text")


@pytest.mark.parametrize(
    ("modifier", "name"),
    [(-1, "decimal"), (655366, "decimal(10, 2)"), ((38 << 16) + 4, "decimal(38, 0)"), ((39 << 16) + 4, "decimal"),
     ((5 << 16) + 0x7FE + 4, "decimal"), ((3 << 16) + 5 + 4, "decimal")],
)  # fmt: skip
def test_the_modifier_of_a_numeric_has_its_digits(modifier: int, name: str) -> None:
    assert str(column_type(1700, modifier, {})) == name


def test_bytes_that_are_not_utf8_are_hexadecimal_beside_the_row() -> None:
    assert cell_encoder(ColumnType("text"))(b"a\xff") is None
    assert cell_encoder(ColumnType("json"))(b'"a \xff"') is None
    assert unmapped_text(b"a\xff") == b'"\\\\x61ff"'


@pytest.mark.parametrize(
    ("kind", "cell", "reason"),
    [
        ("timestamp", b"2026-01-31 13:45:00+02", "TimeZone = 'UTC'"),
        ("timestamp", b"2026-01-31 13:45:00.5-03:30", "TimeZone = 'UTC'"),
        ("bytes", b"abc\\000", "bytea_output = 'hex'"),
    ],
)
def test_a_session_with_the_wrong_settings_is_refused(kind: ColumnKind, cell: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        cell_encoder(ColumnType(kind))(cell)


@pytest.mark.parametrize("cell", [b"x", b"", b"1,2"])
@pytest.mark.parametrize("kind", ["boolean", "integer", "double", "decimal", "date", "time", "timestamp", "list"])
def test_a_text_of_another_type_is_never_written_as_json(kind: ColumnKind, cell: bytes) -> None:
    assert cell_encoder(ColumnType(kind))(cell) is None


@pytest.mark.parametrize("cell", [b"{", b"}", b"{,}", b"{1,}", b"{1", b'{"a}', b"{1}2}", b'{"a"b}', b"{{1}}"])
def test_a_text_that_is_no_list_is_not_read_as_one(cell: bytes) -> None:
    assert cell_encoder(ColumnType("list", element=ColumnType("text")))(cell) is None
