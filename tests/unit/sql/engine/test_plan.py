"""Which statements are one transaction."""

import pytest

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.sql.engine import PlannedStatement, PlannedTransaction, plan
from tailrace.sql.parse import parse


def planned(text: str) -> list[PlannedStatement | PlannedTransaction]:
    statements = parse(text)
    return plan(statements, [()] * len(statements))


def test_what_stands_between_begin_and_commit_is_one_unit() -> None:
    before, kept, between, undone, after = planned(
        "SELECT 1; BEGIN; INSERT INTO t VALUES (1); SELECT * FROM t; COMMIT; SHOW TOPICS; BEGIN; ROLLBACK; SELECT 2"
    )
    assert isinstance(kept, PlannedTransaction)
    assert isinstance(undone, PlannedTransaction)
    assert [step.number for step in kept.statements] == [3, 4]
    assert (kept.is_committed, undone.is_committed) == (True, False)
    assert [unit.number for unit in (before, between, after) if isinstance(unit, PlannedStatement)] == [1, 6, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;\nBEGIN; SELECT 2", "line 2, column 1: the transaction has no COMMIT or ROLLBACK"),
        ("COMMIT", "line 1, column 1: no transaction is open"),
        ("SELECT 1; ROLLBACK", "line 1, column 11: no transaction is open"),
        ("BEGIN; BEGIN; COMMIT", "line 1, column 8: a transaction is already open"),
    ],
)
def test_a_transaction_has_one_beginning_and_one_end(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        planned(text)


@pytest.mark.parametrize("inside", ["CREATE TOPIC a", "DROP TABLE t", "CONSUME FROM a", "SHOW TOPICS", "CLEAR TOPIC a"])
def test_only_reads_and_writes_can_be_part_of_a_transaction(inside: str) -> None:
    with pytest.raises(UnsupportedSqlError, match="line 1, column 8: only SELECT, INSERT, UPDATE, DELETE and TRUNCATE"):
        planned(f"BEGIN; {inside}; COMMIT")
