"""The long run: every profile in turn, then the broken variants, and the report on all of it.

Each part is a run like any other, with a folder, a seed and a verdict of its own; `python -m chaos.report` makes the page
again from the folders.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chaos import report
from chaos.broken.variants import VARIANTS, run_variants
from chaos.profiles import PROFILES
from chaos.run import RunSpec, print_result, run
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.session import check_spark

ROTATION = ("queue", "groups", "transactions", "queues", "retention", "tables", "mixed", "postgres", "shadow", "cdc")
MINUTES = 20.0
_SHARE = 0.7
"""The part of the time for the profiles; the rest is for the broken variants."""


def run_long(seed: int, minutes: float, home: Path, page: Path, console: Console) -> bool:
    """Run everything. Return whether all profiles passed and all variants were caught."""
    failed = []
    folders = []
    for number, name in enumerate(_possible(console)):
        console.rule(f"{name}, seed {seed + number}")
        profile = PROFILES[name]
        folder = home / name
        order = RunSpec(name, profile, tuple(profile.faults), seed + number, minutes * _SHARE / len(ROTATION))
        result = run(order, folder, console)
        print_result(result, console)
        folders.append(folder)
        if not result.has_passed:
            failed.append(f"{name} with seed {seed + number}")
    console.rule("servers that are broken on purpose")
    failed += [f"{name} was not caught" for name in run_variants(list(VARIANTS), seed, home / "broken", console)]
    folders += [home / "broken" / name for name in VARIANTS]
    _write_page(folders, page, console)
    for what in failed:
        console.print(f"[red]failed: {what}[/]")
    return not failed


def _possible(console: Console) -> Sequence[str]:
    try:
        check_spark()
    except PipelineError as error:
        console.print(f"[yellow]cdc is left out: {error}[/]")
        return [name for name in ROTATION if name != "cdc"]
    return ROTATION


def _write_page(folders: Sequence[Path], page: Path, console: Console) -> None:
    report.main([*map(str, folders), "--out", str(page)])
    console.print(f"written: {page}")
