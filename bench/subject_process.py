"""Measures a subject in a process of its own, with a time limit, so that a hang or a crash affects no other subject.

As a program it measures one subject and writes its result to a file.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench import machine
from bench.audit import AuditFailure
from bench.peers.kafka import NotObtainable
from bench.peers.servers import PeerFailure
from bench.results import Circumstances, Result, ScaleName, read_result, write_result
from bench.scale import FULL, QUICK, Scale
from bench.subjects import SUBJECTS, Subject
from bench.workspace import Workspace
from tailrace.server import collect_garbage_rarely

ROOT = Path(__file__).resolve().parents[1]
_SCALES: Mapping[ScaleName, Scale] = {"full": FULL, "quick": QUICK}
_PROGRAM = (sys.executable, "-m", "bench.subject_process")
_RESULT = "result.json"
_LEAST_LIMIT_SECONDS = 300
_LIMIT_FACTOR = 6
"""How much longer a subject may take on a busy machine before it counts as hanging."""
_MOST_DYING_SECONDS = 30


class SubjectProcess:
    """Measures subjects, each in a child process, which is ended with everything that it started."""

    def __init__(self, data: Path, scale: ScaleName, program: Sequence[str] = _PROGRAM) -> None:
        self._data = data
        self._scale = scale
        self._program = program

    def measure(self, name: str, most_seconds: float) -> Result:
        """Return a section, why it was skipped, or why it failed."""
        watch = Watch(self._scale, self._data)
        with TemporaryDirectory(prefix="bench-", dir=self._data) as folder:
            file = Path(folder) / _RESULT
            failure = self._run(name, Path(folder), most_seconds)
            if file.exists():
                return read_result(file)
        return Result(subject=name, circumstances=watch.circumstances(), failure=failure)

    def _run(self, name: str, folder: Path, most_seconds: float) -> str:
        """Run the child; return the failure to report if it leaves no result."""
        command = [*self._program, name, "--scale", self._scale]
        command += ["--folder", str(folder.resolve()), "--cache", str(self._data.resolve())]
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return f"its process ended with code {child.wait(most_seconds)}"
        except subprocess.TimeoutExpired:
            return f"it was not done after {most_seconds:.0f} s"
        finally:
            _end_with_children(child)


def limit_seconds(subject: Subject, scale: ScaleName) -> int:
    return max(_LEAST_LIMIT_SECONDS, _LIMIT_FACTOR * subject.expected_seconds(scale))


class Watch:
    """Records the load of the machine while a subject runs."""

    def __init__(self, scale: ScaleName, data: Path) -> None:
        self._scale = scale
        self._data = data
        self._began = time.monotonic()
        self._load = machine.load()
        self._commit = machine.commit(ROOT)
        self.began = machine.now()

    def circumstances(self) -> Circumstances:
        return Circumstances(
            scale=self._scale,
            began=self.began,
            seconds=round(time.monotonic() - self._began, 1),
            commit=self._commit,
            load_before=self._load,
            load_after=machine.load(),
            machine=machine.facts(self._data),
        )


def measure(name: str, subject: Subject, workspace: Workspace, cache: Path, scale: ScaleName) -> Result:
    """Measure a subject in this process."""
    watch = Watch(scale, workspace.root)
    section = None
    failure = left_out = ""
    try:
        section = subject.run(workspace, cache)
    except NotObtainable as why:
        left_out = str(why)
    except (AuditFailure, PeerFailure) as why:
        failure = str(why)
    except Exception as error:  # noqa: BLE001  whatever it was, the other subjects are still to be measured
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    return Result(subject=name, circumstances=watch.circumstances(), section=section, failure=failure, left_out=left_out)


def _end_with_children(child: "subprocess.Popen[bytes]") -> None:
    """End the child and everything that it started. A server may be left even if the child has ended by itself."""
    try:
        started = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in started:
        if process.is_running():
            process.kill()
    child.wait()
    psutil.wait_procs(started, _MOST_DYING_SECONDS)


def _main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("subject", choices=list(SUBJECTS))
    parser.add_argument("--scale", choices=list(_SCALES), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the data and the result")
    parser.add_argument("--cache", type=Path, required=True, help="for downloads")
    options = parser.parse_args(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

    name = options.subject
    result = measure(name, SUBJECTS[name], Workspace(options.folder, _SCALES[options.scale], say), options.cache, options.scale)
    write_result(options.folder / _RESULT, result)


if __name__ == "__main__":
    collect_garbage_rarely()  # as the server does
    _main()
