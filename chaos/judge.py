"""Judges an old run again: `python -m chaos.judge RUN_FOLDER_OR_FILE`.

It prints the seed, the verdict, how often each rule was broken, and the shortest window around the first violation. The exit
code is 0 for `pass` alone.
"""

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaos.checker.judging import judge_timeline
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Judgement, Verdict, window
from chaos.history import read_lines
from chaos.run_record import HISTORY_FILE, RECORD_FILE, read_record


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.judge", description="Judge a run again, from its history.")
    parser.add_argument("run", type=Path, help=f"the folder of a run, or a file of lines such as {HISTORY_FILE}")
    run: Path = parser.parse_args(arguments).run
    path = run / HISTORY_FILE if run.is_dir() else run
    if not path.is_file():
        parser.error(f"there is no history at {path}: give the folder of a run, or its {HISTORY_FILE}")
    timeline = Timeline(read_lines(path))
    judgement = judge_timeline(timeline)
    sys.stdout.writelines(f"{text}\n" for text in (*_about(path.parent), *describe(timeline, judgement)))
    return 0 if judgement.verdict is Verdict.PASS else 1


def describe(timeline: Timeline, judgement: Judgement) -> Iterator[str]:
    """Yield the verdict, its reasons, and the shortest window around the first violation."""
    yield f"verdict: {judgement.verdict}, by {len(timeline.ops):,} calls"
    for doubt in judgement.doubts:
        yield f"in doubt: {doubt}"
    for rule, count in Counter(violation.rule for violation in judgement.violations).items():
        yield f"broken: {rule} ({count:,})"
    if judgement.violations:
        first = judgement.violations[0]
        yield f"first violation: {first.rule} ({first.invariant}): {first.message}"
        yield from window(timeline, first)


def _about(folder: Path) -> Iterator[str]:
    if (folder / RECORD_FILE).is_file():
        record = read_record(folder)
        mutant = f", server broken on purpose: {record.mutant.name}" if record.mutant else ""
        yield f"seed: {record.seed}, profile: {record.profile}, commit: {record.commit}{mutant}"


if __name__ == "__main__":
    # Millions of small values without reference cycles: collecting garbage takes longer than reading them.
    gc.disable()
    sys.exit(main())
