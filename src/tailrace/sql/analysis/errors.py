"""Why a statement is not accepted, with PostgreSQL's code for it and the place in the text."""


class AnalysisError(Exception):
    def __init__(self, sqlstate: str, message: str, location: int = -1) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.location = location
        """The byte in the UTF-8 text where it is, or -1."""


class UnsupportedError(AnalysisError):
    """PostgreSQL would answer, Tailrace does not."""

    def __init__(self, message: str, location: int = -1) -> None:
        super().__init__("0A000", message, location)


SYNTAX_ERROR = "42601"
UNDEFINED_COLUMN = "42703"
UNDEFINED_TABLE = "42P01"
UNDEFINED_FUNCTION = "42883"
UNDEFINED_OBJECT = "42704"
AMBIGUOUS_COLUMN = "42702"
AMBIGUOUS_FUNCTION = "42725"
DATATYPE_MISMATCH = "42804"
CANNOT_COERCE = "42846"
GROUPING_ERROR = "42803"
WINDOWING_ERROR = "42P20"
DUPLICATE_ALIAS = "42712"
INVALID_COLUMN_REFERENCE = "42P10"
INVALID_TEXT = "22P02"
OUT_OF_RANGE = "22003"
INVALID_DATETIME = "22007"
DATETIME_OVERFLOW = "22008"
INVALID_PARAMETER = "22023"
CARDINALITY_VIOLATION = "21000"
