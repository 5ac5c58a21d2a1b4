"""In which forms commands print. Apart from the code that does it, so that `--help` is quick."""

from enum import StrEnum


class RowFormat(StrEnum):
    """Rows of SQL."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class MessageFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    VALUE = "value"
