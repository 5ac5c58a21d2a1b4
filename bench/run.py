"""`make bench`: every subject in turn, each in a process of its own; results as JSON, one page of Markdown and one of HTML.

The results of a full run are stored in `bench/results` and those of a quick one in `build/quick-results`, a file for each
subject, so that a run can be done in parts: `--only` measures some again, `--resume` continues an interrupted run, `--minutes`
limits its time. The pages show all stored results.

Exits with 1 if a subject failed: a record was lost, duplicated or out of place, a server did not start, or the time was up.
The other results count all the same. A missed bar is shown in the pages and on the screen; it is no failure of the run.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.render import write_pages
from bench.report.markdown import summary
from bench.results import Result, ResultFolder, ScaleName
from bench.subject_process import ROOT, SubjectProcess, limit_seconds
from bench.subjects import SUBJECTS

FULL_RESULTS = ROOT / "bench" / "results"
QUICK_RESULTS = ROOT / "build" / "quick-results"
_BROKEN_OFF = 130
"""The exit code of a shell after Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    names = _chosen(options)
    if options.plan:
        print(_plan(names, options.scale))
        return 0
    options.dir.mkdir(parents=True, exist_ok=True)
    results = ResultFolder(options.results)
    run = _Run(results, SubjectProcess(options.dir, options.scale), options.scale, options.minutes)
    try:
        found = [run.measure(name, f"{number} of {len(names)}") for number, name in enumerate(names, 1)]
    except KeyboardInterrupt:
        run.say("broken off: what is measured is kept, and --resume goes on from here")
        return _BROKEN_OFF
    pages = write_pages(results, options.out)
    run.say(summary(results.all(SUBJECTS)))
    run.say("written: " + ", ".join(map(str, pages)))
    return 1 if any(result is not None and result.failure for result in found) else 0


class _Run:
    """Measures subject by subject and prints its progress."""

    def __init__(self, results: ResultFolder, process: SubjectProcess, scale: ScaleName, minutes: float | None) -> None:
        self._results = results
        self._process = process
        self._scale = scale
        self._began = time.monotonic()
        self._ends = self._began + 60 * minutes if minutes is not None else float("inf")

    def measure(self, name: str, place: str) -> Result | None:
        """Measure and store a subject; return `None` if there is no time left for it."""
        subject = SUBJECTS[name]
        expected = subject.expected_seconds(self._scale)
        left = self._ends - time.monotonic()
        if expected > left:
            self.say(f"{place}: {name} is not measured: it takes about {expected} s, and {max(0.0, left):.0f} s are left")
            return None
        self.say(f"{place}: {name}, about {expected} s")
        result = self._process.measure(name, min(left, limit_seconds(subject, self._scale)))
        self._results.keep(result)
        self.say(f"{name}: {_told(result)}")
        return result

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {line}", file=sys.stderr, flush=True)


def _told(result: Result) -> str:
    if result.failure:
        return f"FAILED: {result.failure}"
    if result.left_out:
        return f"left out: {result.left_out}"
    return f"done in {result.circumstances.seconds:.0f} s; {summary([result])}"


def _chosen(options: argparse.Namespace) -> list[str]:
    wanted = options.only or [
        name for name, subject in SUBJECTS.items() if not subject.is_extra or (options.profile and name.startswith("profiles"))
    ]
    if not options.resume:
        return list(wanted)
    results, commit = ResultFolder(options.results), machine.commit(ROOT)
    return [name for name in wanted if not _is_done(results.find(name), options.scale, commit)]


def _is_done(result: Result | None, scale: ScaleName, commit: str) -> bool:
    """Return whether a run of the same code has measured it."""
    if result is None or result.section is None:
        return False
    return (result.circumstances.scale, result.circumstances.commit) == (scale, commit)


def _plan(names: Sequence[str], scale: ScaleName) -> str:
    seconds = {name: SUBJECTS[name].expected_seconds(scale) for name in names}
    lines = [f"{expected:5} s  {name}" for name, expected in seconds.items()]
    return "\n".join([*lines, f"{sum(seconds.values()):5} s  together, {sum(seconds.values()) / 60:.0f} minutes"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = ", ".join(SUBJECTS)
    parser = argparse.ArgumentParser(prog="make bench", description="Measure Tailrace on this machine, beside its peers.")
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds; results and pages go to build/")
    parser.add_argument("--only", action="append", choices=list(SUBJECTS), metavar="NAME", help=f"one of {names}; repeatable")
    parser.add_argument("--resume", action="store_true", help="leave out what is already measured of this commit")
    parser.add_argument("--minutes", type=float, help="begin nothing that would take longer than this in all")
    parser.add_argument("--profile", action="store_true", help="sample the hottest paths with py-spy as well")
    parser.add_argument("--plan", action="store_true", help="say how long it would take, and measure nothing")
    parser.add_argument("--dir", type=Path, default=ROOT / "build", help="where to write the data; it is removed afterwards")
    parser.add_argument("--results", type=Path, help="where to keep the results")
    parser.add_argument("--out", type=Path, help="where to write the pages; docs/ after a full run")
    options = parser.parse_args(arguments)
    options.scale = "quick" if options.quick else "full"
    options.results = options.results or (QUICK_RESULTS if options.quick else FULL_RESULTS)
    options.out = options.out or (ROOT / "build" if options.quick else ROOT / "docs")
    return options


if __name__ == "__main__":
    # A run that is told to end must end its subject too, which has its own session.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
