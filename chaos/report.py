"""Writes docs/reliability.md from runs: `python -m chaos.report RUN_FOLDER... [--out FILE]`.

Every figure is counted from the histories of the runs, which are judged again. Only the description of a run (seed, machine,
versions) is taken from its record. Failed runs are reported, too, and change the exit code.
"""

import argparse
import gc
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from chaos.checker.rules import RULES
from chaos.checker.violation import Verdict
from chaos.figures import OperationFigures, RunFigures, read_run
from chaos.history import CallOutcome

PAGE = Path("docs/reliability.md")
WIDTH = 120

NOT_TESTED = (
    "More than one machine: there is no replication, so nothing here says anything about losing a disk.",
    "A real power cut: unsynced bytes are taken away from a copy of the disk. A drive that lies about its cache was not used.",
    "File systems and kernels other than the one below; network file systems.",
    "Long runs: what takes days to go wrong does not show in minutes.",
    "Writes that a disk puts in another location, or reads back wrong without an error, while the server runs.",
    "Hostile clients beyond those listed; `make fuzz` looks for harmful input.",
    '`durability = "relaxed"`: it promises less, and is tested by `tests/chaos/test_power_cuts.py`.',
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.report", description="Write the reliability report from runs.")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs, also of servers that were broken on purpose")
    parser.add_argument("--out", type=Path, default=PAGE, help=f"the file to write; {PAGE} unless told otherwise")
    chosen = parser.parse_args(arguments)
    runs = [read_run(folder) for folder in chosen.runs]
    if all(run.record.mutant for run in runs):
        parser.error("all these runs are of servers that were broken on purpose: give at least one of the server as it is")
    chosen.out.write_text(render(runs))
    return 0 if all(is_good(run) for run in runs) else 1


def is_good(run: RunFigures) -> bool:
    """Return whether the run passed, or, with a server broken on purpose, whether one of the right rules noticed."""
    if run.record.mutant:
        return bool(_noticed(run))
    return run.judgement.verdict is Verdict.PASS


def render(runs: Sequence[RunFigures]) -> str:
    sound = [run for run in runs if run.record.mutant is None]
    mutants = [run for run in runs if run.record.mutant is not None]
    parts = (
        _head(sound, mutants),
        _runs(sound),
        _operations(sound),
        _faults(sound),
        _rules(sound),
        _mutants(mutants),
        _not_tested(),
        _where(sound),
    )
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _head(sound: Sequence[RunFigures], mutants: Sequence[RunFigures]) -> Iterator[str]:
    calls = sum(run.count() for run in sound)
    violations = sum(len(run.judgement.violations) for run in sound)
    caught = sum(is_good(run) for run in mutants)
    yield "# Reliability"
    yield ""
    yield "Real servers under real clients, while they are killed, frozen, cut off and robbed of their disk. Every call and"
    yield "answer was written down, and a checker held them against what is promised in [guarantees](guarantees.md). This page"
    yield "is written by `python -m chaos.report` from those histories; `make chaos` makes new ones."
    yield ""
    yield from _item(
        f"**{calls:,} calls** and **{sum(sum(run.faults.values()) for run in sound):,} faults** in"
        f" {sum(run.record.minutes for run in sound):g} minutes, **{violations:,} violations**."
    )
    silent = max(sound, key=lambda run: run.longest_silence.seconds)
    during = " and ".join(silent.faults_of_longest_silence) or "no fault"
    yield from _item(
        f"Longest time without an answer: {silent.longest_silence.seconds:.1f} s, at {silent.longest_silence.begins:.0f} s of"
        f" the run with seed {silent.record.seed}, during {during}; while no fault was in force:"
        f" {max(run.longest_healthy_silence for run in sound):.1f} s."
    )
    recoveries = [seconds for run in sound for times in run.recoveries.values() for seconds in times]
    if recoveries:
        yield from _item(
            f"From the start of a server that was down to its first answer: {median(recoveries):.2f} s in the median,"
            f" {max(recoveries):.2f} s at most, {len(recoveries):,} times."
        )
    if mutants:
        yield from _item(f"**{caught} of {len(mutants)}** servers that were broken on purpose were found out.")
    yield ""


def _runs(sound: Sequence[RunFigures]) -> Iterator[str]:
    yield "## Runs"
    yield ""
    yield from _table(
        ("Seed", "Profile", "Minutes", "Calls", "ok", "failed", "unknown", "Faults", "Memory", "Verdict", "Begun", "Commit"),
        (
            (
                run.record.seed,
                run.record.profile,
                f"{run.record.minutes:g}",
                f"{run.count():,}",
                *(f"{run.count(outcome):,}" for outcome in CallOutcome),
                f"{sum(run.faults.values()):,}",
                f"{run.most_memory_bytes / 2**20:.0f} MiB",
                f"**{run.judgement.verdict}**",
                run.record.began,
                f"`{run.record.commit}`",
            )
            for run in sound
        ),
    )
    yield "A call is unknown when its answer did not come; it may have taken effect or not, and the checker allows for both."
    yield "Memory is the most that the server took at once."
    yield ""
    for run in sound:
        for doubt in run.judgement.doubts:
            yield from _item(f"In doubt, seed {run.record.seed}: {doubt}")
        for violation in run.judgement.violations[:1]:
            yield from _item(f"First violation, seed {run.record.seed}: {violation.rule}: {violation.message}")
    if not all(is_good(run) for run in sound):
        yield ""


def _operations(sound: Sequence[RunFigures]) -> Iterator[str]:
    operations = sum((run.operations for run in sound), Counter[OperationFigures]())
    kinds = sorted({(operation.kind, operation.surface) for operation in operations})
    yield "## Operations"
    yield ""
    yield from _table(
        ("Call", "Surface", "ok", "failed", "unknown"),
        (
            (kind, surface, *(f"{operations[OperationFigures(kind, surface, outcome)]:,}" for outcome in CallOutcome))
            for kind, surface in kinds
        ),
    )


def _faults(sound: Sequence[RunFigures]) -> Iterator[str]:
    faults = sum((run.faults for run in sound), Counter[str]())
    recoveries: dict[str, list[float]] = {}
    for run in sound:
        for kind, times in run.recoveries.items():
            recoveries.setdefault(kind, []).extend(times)
    yield "## Faults"
    yield ""
    yield "Times are seconds from the start of a server that was down to its first answer to a worker."
    yield ""
    yield from _table(
        ("Fault", "Times", "Back, median", "Back, at most"),
        (
            (
                kind,
                f"{faults[kind]:,}",
                f"{median(recoveries[kind]):.2f} s" if kind in recoveries else "",
                f"{max(recoveries[kind]):.2f} s" if kind in recoveries else "",
            )
            for kind in sorted(faults)
        ),
    )


def _rules(sound: Sequence[RunFigures]) -> Iterator[str]:
    broken = Counter(violation.rule for run in sound for violation in run.judgement.violations)
    judged = sum((Counter(run.judged) for run in sound), Counter[str]())
    yield "## Rules"
    yield ""
    yield "A rule that had nothing to judge in these runs has shown nothing."
    yield ""
    yield from _table(
        ("Rule", "", "Says", "Judged", "Violations"),
        (
            (
                f"`{rule.name}`",
                rule.invariant,
                rule.says,
                f"{judged[rule.name]:,}",
                broken[rule.name] if judged[rule.name] or broken[rule.name] else "",
            )
            for rule in RULES
        ),
    )


def _mutants(mutants: Sequence[RunFigures]) -> Iterator[str]:
    if not mutants:
        return
    yield "## Servers broken on purpose"
    yield ""
    yield "A checker that never finds anything proves nothing. Each of these servers has a known bug, and a rule must notice."
    yield ""
    rows = []
    for run in mutants:
        mutant = run.record.mutant
        if mutant:
            noticed = ", ".join(f"`{rule}`" for rule in _noticed(run)) or "**not noticed**"
            rows.append((f"`{mutant.name}`", mutant.breaks, noticed, run.record.seed))
    yield from _table(("Server", "What is wrong with it", "Noticed by", "Seed"), sorted(rows))


def _not_tested() -> Iterator[str]:
    yield "## What was not tested"
    yield ""
    for text in NOT_TESTED:
        yield from _item(text)
    yield ""


def _where(sound: Sequence[RunFigures]) -> Iterator[str]:
    yield "## Where"
    yield ""
    for about in dict.fromkeys(_environment(run) for run in sound):
        yield from _item(about)


def _environment(run: RunFigures) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.record.versions.items())
    return f"{run.record.machine}; durability `{run.record.durability}`; {versions}"


def _noticed(run: RunFigures) -> list[str]:
    """Return the rules that noticed, of those that should have."""
    mutant = run.record.mutant
    return [rule for rule in run.judgement.rules_broken if mutant and rule in mutant.shows_as]


def _item(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"
    yield ""


if __name__ == "__main__":
    # Millions of small values without reference cycles: collecting garbage takes longer than reading them.
    gc.disable()
    sys.exit(main())
