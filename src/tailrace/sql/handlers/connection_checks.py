"""How CREATE SOURCE and CREATE SHADOW tell what was checked of the other system: as rows of a DRY RUN, or as an error."""

from collections.abc import Sequence

from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import SqlError
from tailrace.model.table import ColumnType
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.statements import Statement

_COLUMNS = tuple(ResultColumn(name, ColumnType("text")) for name in ("check", "result", "detail", "advice"))


def dry_run_result(checks: Sequence[ConnectionCheck]) -> Result:
    failed = sum(check.result == "failed" for check in checks)
    return Result(_COLUMNS, [tuple(check) for check in checks], f"DRY RUN {failed} failed")


def raise_failed(checks: Sequence[ConnectionCheck], asked: Statement) -> None:
    """Raise the first check that has failed, if there is one."""
    wrong = next((check for check in checks if check.result == "failed"), None)
    if wrong is not None:
        raise SqlError(f"{wrong.detail}. {wrong.advice}".rstrip(". ") + ".", asked.line, asked.column)
