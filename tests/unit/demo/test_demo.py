"""The demo's record of acknowledged rows is right whenever the server is killed, and its processes end with it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from demo.chat import AckedRows, Writer
from demo.server import PipelineProcess, Unanswered

STATEMENTS = 40


class Table:
    """Rows by id, and how many were changed. Does not answer one statement, which it may have done all the same."""

    def __init__(self, silent_at: int, *, does_it: bool) -> None:
        self.ids: set[int] = set()
        self.changes = 0
        self._left = silent_at
        self._does_it = does_it

    def sql(self, statement: str, params: Sequence[object] = ()) -> list[list[object]]:
        self._left -= 1
        if self._left or self._does_it:
            self._do(statement, list(params))
        if not self._left:
            raise Unanswered
        return []

    def _do(self, statement: str, params: list[object]) -> None:
        if statement.startswith("INSERT"):
            new = {row[0] for row in params}  # type: ignore[index]
            self.ids |= new
            self.changes += len(new)
        elif params[-1] in self.ids:
            self.changes += 1
            if statement.startswith("DELETE"):
                self.ids.remove(params[-1])


@pytest.mark.parametrize("does_it", [True, False])
@pytest.mark.parametrize("silent_at", range(1, STATEMENTS))
def test_the_book_is_right_whichever_statement_got_no_answer(silent_at: int, does_it: bool) -> None:
    table, acked, writer = Table(silent_at, does_it=does_it), AckedRows(), Writer(seed=7)
    writer.write(table, acked, STATEMENTS)  # type: ignore[arg-type]
    assert acked.unanswered is not None
    if does_it:
        acked.add(acked.unanswered)
    writer.write(table, acked, 20 * STATEMENTS)  # type: ignore[arg-type]
    assert acked.changes.total() == table.changes
    assert set(acked.alive) == table.ids


def test_a_demo_that_fails_leaves_no_pipeline_behind(tmp_path: Path) -> None:
    with pytest.raises(LookupError), PipelineProcess("http://127.0.0.1:9", tmp_path / "pipeline.log") as pipeline:
        pipeline.check()
        raise LookupError("as when nothing was routed in time")
    with pytest.raises(SystemExit, match="the pipeline ended"):
        pipeline.check()
