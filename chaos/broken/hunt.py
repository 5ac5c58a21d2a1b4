"""Runs broken variants one after the other: each must be caught, by a rule that fits what is wrong with it.

Some faults show only when two things meet, a pause and a commit say. Such a run may pass in peace, so there are a few of them.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chaos.broken.variants import VARIANTS
from chaos.run import Order, run, tell

MINUTES = 16 / 60
_RUNS = 3


def hunt(names: Sequence[str], seed: int, home: Path, console: Console) -> list[str]:
    """Those that went unnoticed. Each run has its folder below `home`."""
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
    """What one run shows, which leaves its folder and what it said."""
    variant = VARIANTS[name]
    order = Order(f"broken-{name}", variant.profile, variant.faults, seed, MINUTES, variant.mutant)
    with (home / f"{name}.log").open("w") as log:
        result = run(order, home / name, Console(file=log, width=200))
        tell(result, Console(file=log, width=200))
    return result.judgement.rules_broken
