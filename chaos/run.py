"""One run: a folder with `run.json`, `history.jsonl` and the server's log, and the verdict on it."""

import datetime
import logging
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.console import Console

from chaos.checker.judging import judge_timeline
from chaos.checker.timeline import Timeline
from chaos.checker.violation import Judgement, Verdict
from chaos.history import read_lines
from chaos.judge import describe
from chaos.profiles import Profile
from chaos.recorder import Recorder
from chaos.run_record import HISTORY_FILE, Mutant, RunRecord, write_record
from chaos.server_process import ROOT
from chaos.supervisor import RunSupervisor
from chaos.testbed import Testbed

_PARTS = ("tailrace", "confluent-kafka", "aiokafka", "httpx", "rocksdict", "duckdb", "apsw")


class RunSpec(NamedTuple):
    """What to run."""

    name: str
    profile: Profile
    faults: tuple[str, ...]
    seed: int
    minutes: float
    mutant: Mutant | None = None


class RunResult(NamedTuple):
    timeline: Timeline
    judgement: Judgement
    problems: list[str]
    """What went wrong with the run itself, so that it proves nothing."""

    @property
    def has_passed(self) -> bool:
        return self.judgement.verdict is Verdict.PASS and not self.problems


def run(spec: RunSpec, folder: Path, console: Console) -> RunResult:
    """Run and judge. The server's folder is kept if anything went wrong."""
    folder.mkdir(parents=True)
    write_record(folder, _record(spec))
    _send_logs_to(folder / "clients.log")
    environment = {"CHAOS_BROKEN": spec.mutant.name} if spec.mutant else {}
    history = folder / HISTORY_FILE
    with Recorder(history) as recorder, Testbed(folder, recorder, environment) as testbed:
        supervisor = RunSupervisor(testbed, spec.profile, spec.faults, spec.seed, spec.minutes * 60, console)
        supervisor.run()
        recorder.flush()
        timeline = Timeline(read_lines(history))
        result = RunResult(timeline, judge_timeline(timeline), supervisor.problems)
        if not result.has_passed and spec.mutant is None:
            testbed.keep = folder / "data"
    return result


def print_result(result: RunResult, console: Console) -> None:
    for line in describe(result.timeline, result.judgement):
        console.print(line, markup=False)


def _send_logs_to(file: Path) -> None:
    """Keep the log of the clients, which complain about every fault of the network, out of the console."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger().handlers[:] = [handler]


def _record(spec: RunSpec) -> RunRecord:
    return RunRecord(
        seed=spec.seed,
        profile=spec.name,
        workloads=tuple(workload.name for workload in spec.profile.workloads),
        minutes=spec.minutes,
        faults=spec.faults,
        began=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=_commit(),
        versions={
            "python": platform.python_version(),
            "kernel": platform.release(),
            **{name: version(name) for name in _PARTS},
        },
        machine=f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        mutant=spec.mutant,
    )


def _commit() -> str:
    """Return the commit of the checkout, if it is one."""
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
