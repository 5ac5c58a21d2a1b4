"""All broken variants: the run in which each shows, and the rules of which one must notice.

`run_variants` runs them one after the other. Some faults show only when two things meet, such as a pause and a commit, so that
a run may pass without them; such a variant gets a few runs.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from chaos.broken.patches import PATCHES
from chaos.profiles import Profile
from chaos.run import RunSpec, print_result, run
from chaos.run_record import Mutant
from chaos.workloads import GroupsWorkload, QueuesWorkload, QueueWorkload, TablesWorkload, TransactionsWorkload, Workload

GAP_SECONDS = 1.5


class BrokenVariant(NamedTuple):
    name: str
    shows_as: tuple[str, ...]
    workload: type[Workload]
    faults: tuple[str, ...]

    @property
    def mutant(self) -> Mutant:
        """The mutant, described by the docstring of its patch."""
        return Mutant(self.name, (PATCHES[self.name].__doc__ or "").strip(), self.shows_as)

    @property
    def profile(self) -> Profile:
        return Profile((self.workload,), self.faults, gap_seconds=GAP_SECONDS)


VARIANTS: Mapping[str, BrokenVariant] = {
    variant.name: variant
    for variant in (
        BrokenVariant("ack-before-sync", ("lost-write", "unseen", "stale-end"), QueueWorkload, ("power",)),
        BrokenVariant("lost-tail", ("lost-write", "unseen", "stale-end"), QueueWorkload, ("kill",)),
        BrokenVariant("offset-reuse", ("inconsistent-offset", "lost-write", "stale-end"), QueueWorkload, ("kill",)),
        BrokenVariant("skipped-batch", ("poll-skip",), QueueWorkload, ("pause",)),
        BrokenVariant("sequence-check-off", ("duplicate",), QueueWorkload, ("slow-syncs", "cut")),
        BrokenVariant("commit-not-fenced", ("fenced-commit",), GroupsWorkload, ("pause",)),
        BrokenVariant("offset-moved-back", ("commit-lost", "committed-back"), GroupsWorkload, ("kill",)),
        BrokenVariant("aborted-served", ("aborted-read",), TransactionsWorkload, ("pause",)),
        BrokenVariant("torn-transaction", ("torn-transaction",), TransactionsWorkload, ("kill",)),
        BrokenVariant("queue-ack-forgotten", ("redelivered", "acked-twice"), QueuesWorkload, ("kill",)),
        BrokenVariant("table-behind-log", ("stale-row", "rebuilt-table"), TablesWorkload, ("kill",)),
    )
}


MINUTES = 16 / 60
_RUNS = 3


def run_variants(names: Sequence[str], seed: int, home: Path, console: Console) -> list[str]:
    """Run the variants, each in a folder below `home`. Return those that went unnoticed."""
    home.mkdir(parents=True)
    missed = []
    for name in names:
        mutant = VARIANTS[name].mutant
        broken: Sequence[str] = ()
        caught: list[str] = []
        for number in range(_RUNS):
            shutil.rmtree(home / name, ignore_errors=True)
            broken = _rules_broken(name, seed + number, home)
            caught = [rule for rule in mutant.shows_as if rule in broken]
            if caught:
                break
        if caught:
            also = [rule for rule in broken if rule not in caught]
            beside = f" (also {', '.join(also)})" if also else ""
            console.print(f"[green]caught[/] {name}: {mutant.breaks} By {', '.join(caught)}{beside}")
        else:
            missed.append(name)
            seen = f"only {', '.join(broken)}" if broken else "nothing"
            console.print(f"[red]missed[/] {name}: {mutant.breaks} {seen} was noticed; look at {home / name}")
    console.print(f"{len(names) - len(missed)} of {len(names)} broken variants were caught")
    return missed


def _rules_broken(name: str, seed: int, home: Path) -> Sequence[str]:
    """Return the rules that one run broke. It leaves its folder and its output."""
    variant = VARIANTS[name]
    order = RunSpec(f"broken-{name}", variant.profile, variant.faults, seed, MINUTES, variant.mutant)
    with (home / f"{name}.log").open("w") as log:
        result = run(order, home / name, Console(file=log, width=200))
        print_result(result, Console(file=log, width=200))
    return result.judgement.rules_broken
