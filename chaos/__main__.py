"""`python -m chaos`: run a profile under faults and judge it. The exit code is 1 if a promise was broken."""

import random
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from chaos.broken.variants import VARIANTS, run_variants
from chaos.faults.kinds import KINDS
from chaos.long import MINUTES, run_long
from chaos.profiles import PROFILES
from chaos.report import PAGE
from chaos.run import RunSpec, print_result, run

RUNS = Path("build/chaos")
LONG = "long"


def main(
    profile: Annotated[
        str, typer.Option(help=f"One of {', '.join(PROFILES)}, or {LONG}: all in turn, and a report.")
    ] = "short",
    seed: Annotated[int | None, typer.Option(help="Repeat the choices of an earlier run.")] = None,
    minutes: Annotated[float | None, typer.Option(help="How long, without the final reads.")] = None,
    faults: Annotated[str | None, typer.Option(help=f"Some of {', '.join(KINDS)}; by default those of the profile.")] = None,
    broken: Annotated[
        str | None, typer.Option(help=f"Run servers that are broken on purpose: all, or some of {', '.join(VARIANTS)}.")
    ] = None,
    page: Annotated[Path, typer.Option(help=f"Where the profile {LONG} writes its report.")] = PAGE,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; by default a new one below build/chaos.")] = None,
) -> None:
    """Run a profile under faults, judge what was seen, and say what was broken, if anything."""
    console = Console(highlight=False, soft_wrap=True)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    stamp = time.strftime("%Y%m%d-%H%M%S")
    if broken is not None:
        names = list(VARIANTS) if broken == "all" else _some_of(broken, VARIANTS, "variant")
        missed = run_variants(names, seed, out or RUNS / f"{stamp}-broken-{seed}", console)
        sys.exit(1 if missed else 0)
    if profile == LONG:
        passed = run_long(seed, minutes or MINUTES, out or RUNS / f"{stamp}-{LONG}-{seed}", page, console)
        sys.exit(0 if passed else 1)
    chosen = PROFILES[_one_of(profile, (*PROFILES, LONG), "profile")]
    kinds = tuple(_some_of(faults, KINDS, "fault")) if faults else tuple(chosen.faults)
    folder = out or RUNS / f"{stamp}-{profile}-{seed}"
    order = RunSpec(profile, chosen, kinds, seed, minutes or chosen.minutes)
    result = run(order, folder, console)
    print_result(result, console)
    console.print(f"seed {seed}, kept in {folder}; judge it again with: python -m chaos.judge {folder}")
    sys.exit(0 if result.has_passed else 1)


def _some_of(given: str, known: Collection[str], what: str) -> list[str]:
    return [_one_of(name, known, what) for name in given.split(",")]


def _one_of(name: str, known: Collection[str], what: str) -> str:
    if name not in known:
        raise typer.BadParameter(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return name


if __name__ == "__main__":
    typer.run(main)
