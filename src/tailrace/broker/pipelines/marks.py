"""Marks in the store: how far a pipeline or a writer has come in each of its sources.

A mark moves in the frame that holds what was made of the source up to there, so a move that is found done need not, and must
not, be done again.
"""

from collections.abc import Sequence

from tailrace.broker import keys
from tailrace.broker.commits.draft import Draft
from tailrace.model.errors import PipelineConflictError
from tailrace.model.pipeline import NO_MARK, MarkMove


def read_mark(value: bytes | None) -> int:
    return NO_MARK if value is None else int.from_bytes(value, signed=True)


def put_mark(draft: Draft, name: str, source: str, at: int) -> None:
    draft.put(keys.mark_key(name, source), at.to_bytes(8, signed=True))


def standing(draft: Draft, name: str, source: str) -> int:
    return read_mark(draft.latest(keys.mark_key(name, source)))


def has_happened(draft: Draft, name: str, moves: Sequence[MarkMove]) -> bool:
    """Whether the pipeline is past all of these moves. Raises where it stands elsewhere than a move begins."""
    past = 0
    for source, before, after in moves:
        at = standing(draft, name, source)
        if at >= after:
            past += 1
        elif before is not None and at != before:
            raise PipelineConflictError(
                f"pipeline {name!r} stands at {at} in {source!r}, and the step goes from {before} to {after}: start again from"
                " the mark"
            )
    if past and past < len(moves):
        raise PipelineConflictError(f"some steps of a chunk of pipeline {name!r} have been done and others not: {list(moves)}")
    return bool(moves) and past == len(moves)
