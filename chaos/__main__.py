"""`python -m chaos`: run a profile under faults and have it judged. Exit code 1 when a promise was broken."""

import random
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from chaos.checker.judging import judge_timeline
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Verdict
from chaos.faults.kinds import KINDS
from chaos.history import read_lines
from chaos.judge import describe
from chaos.profiles import PROFILES
from chaos.run import Order, run
from chaos.run_record import HISTORY_FILE

RUNS = Path("build/chaos")


def main(
    profile: Annotated[str, typer.Option(help=f"One of {', '.join(PROFILES)}.")] = "queue",
    seed: Annotated[int | None, typer.Option(help="Repeat the choices of an earlier run.")] = None,
    minutes: Annotated[float | None, typer.Option(help="How long, without the final reads.")] = None,
    faults: Annotated[str | None, typer.Option(help=f"Some of {', '.join(KINDS)}; by default those of the profile.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; by default a new one below build/chaos.")] = None,
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    chosen = PROFILES[profile]
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    kinds = tuple(faults.split(",")) if faults else tuple(chosen.faults)
    order = Order(profile, chosen, kinds, seed, minutes or chosen.minutes)
    folder = out or RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{profile}-{seed}"
    troubles = run(order, folder, console)
    timeline = Timeline(read_lines(folder / HISTORY_FILE))
    judgement = judge_timeline(timeline)
    for line in describe(timeline, judgement):
        console.print(line, markup=False)
    console.print(f"seed {seed}, kept in {folder}; judge it again with: python -m chaos.judge {folder}")
    sys.exit(1 if troubles or judgement.verdict is not Verdict.PASS else 0)


if __name__ == "__main__":
    typer.run(main)
