"""Leads one run through its phases: steady, faults, heal, final reads.

All choices of the schedule come from the seed: which faults, in which order, how long and how far apart. Faults of the process
and of its disk come one after the other; lasting ones (a slow network, slow syncs, a wrong clock) continue beside them. It
judges nothing. A problem is what makes a run worthless as evidence, such as a worker that failed.
"""

import random
import threading
import time
import traceback
from collections.abc import Iterator, Sequence

from rich.console import Console

from chaos.api import RefusedError, RunApi
from chaos.faults.kinds import KINDS, possible
from chaos.history import CallOutcome, Fault, RunPhase
from chaos.profiles import Profile
from chaos.server_process import ServerError
from chaos.testbed import Testbed
from chaos.workers.final import FinalReads
from chaos.workers.worker import Worker, WorkerContext
from chaos.workloads import Workload, WorkloadRate

HEAL_SECONDS = 40.0
"""How long to wait for the first success after the last fault. The promise is 30 s, which the checker verifies."""
HEALTHY_SECONDS = 3.0
"""How long clients continue after that, at least."""
CALM_SECONDS = 10.0
"""How long the phases without faults last, at most."""
END_SECONDS = 45.0
STATUS_SECONDS = 10.0


class _Unusable(Exception):
    """A fault was only half injected, so the state of the server and its disk is unknown."""


class RunSupervisor:
    def __init__(
        self, testbed: Testbed, profile: Profile, faults: Sequence[str], seed: int, seconds: float, console: Console
    ) -> None:
        self._testbed = testbed
        self._recorder = testbed.recorder
        self._profile = profile
        self._faults = faults
        self._seed = seed
        self._seconds = seconds
        self._console = console
        self._choice = random.Random(seed)  # noqa: S311
        self._workloads: list[Workload] = []
        self._workers: list[Worker] = []
        self._lasting: list[threading.Thread] = []
        self._heal_seconds = max(HEALTHY_SECONDS, min(CALM_SECONDS, seconds * 0.1))
        self._status_due = 0.0
        testbed.on_fault = self._print_fault
        self.problems: list[str] = []

    def run(self) -> None:
        try:
            self._prepare()
            self._steady()
            self._inject_faults()
            self._heal()
            self._finish()
        except ServerError as error:
            self._note_problem(f"the server: {error}")
        except RefusedError as error:
            self._note_problem(f"the server does not do what every run takes for granted: {error}")
        except _Unusable:
            return

    def _prepare(self) -> None:
        self._testbed.start()
        context = WorkerContext(self._recorder, self._testbed.kafka, self._testbed.url)
        load = WorkloadRate(self._profile.load)
        self._workloads = [kind(context, self._seed, load) for kind in self._profile.workloads]
        with RunApi(self._testbed.server.url, timeout=30) as api:
            for workload in self._workloads:
                workload.prepare(api)
                # The first query starts an engine that stays, which must not look like a leak.
                api.sql(f"SELECT count(*) FROM {workload.topics[0].name}")
        for workload in self._workloads:
            workload.start_companions(self._testbed)
        self._workers = [worker for workload in self._workloads for worker in workload.workers()]

    def _steady(self) -> None:
        self._phase("steady")
        for worker in self._workers:
            worker.start()
        self._wait(min(CALM_SECONDS, self._seconds * 0.15))

    def _inject_faults(self) -> None:
        self._phase("faults")
        kinds, reasons = possible(self._testbed, self._faults)
        for name, reason in reasons.items():
            self._say(f"[yellow]{name} is left out: {reason}[/]")
        until = self._recorder.now() + self._seconds - min(CALM_SECONDS, self._seconds * 0.15) - self._heal_seconds
        names = self._schedule(kinds)
        while kinds and self._recorder.now() < until:
            self._inject(next(names))
            self._wait(self._choice.uniform(0, 2 * self._profile.gap_seconds))
        for thread in self._lasting:
            thread.join()

    def _heal(self) -> None:
        self._phase("heal")
        healed = self._recorder.now()
        deadline = healed + HEAL_SECONDS
        while self._recorder.last_ok <= healed and self._recorder.now() < deadline:
            time.sleep(0.05)
        self._wait(self._heal_seconds)
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            if not worker.join(END_SECONDS):
                self._note_problem(f"worker {worker.name} does not end: {worker.describe_thread()}")
            elif worker.failure is not None:
                self._note_problem(f"worker {worker.name} broke: {worker.failure}")

    def _finish(self) -> None:
        self._phase("final")
        url, kafka = self._testbed.server.url, self._testbed.kafka
        with RunApi(url, timeout=60) as api, FinalReads(self._recorder, api, kafka) as reads:
            for workload in self._workloads:
                workload.finish(api)
                reads.read([topic.name for topic in workload.topics], workload.translate)
        self._testbed.stop()
        self._testbed.inspect()

    def _schedule(self, kinds: Sequence[str]) -> Iterator[str]:
        """Yield every kind once, in random order, again and again."""
        while True:
            yield from self._choice.sample(kinds, len(kinds))

    def _inject(self, name: str) -> None:
        kind = KINDS[name]
        choice = random.Random(self._choice.getrandbits(64))  # noqa: S311
        if kind.lasting:
            self._lasting = [thread for thread in self._lasting if thread.is_alive()]
            thread = threading.Thread(target=self._guarded, args=(name, choice), name=name, daemon=True)
            self._lasting.append(thread)
            thread.start()
        else:
            self._guarded(name, choice)

    def _guarded(self, name: str, choice: random.Random) -> None:
        try:
            KINDS[name].cause(self._testbed, choice)
        except ServerError:
            raise
        except Exception as error:
            self._note_problem(f"fault {name}: {traceback.format_exc()}")
            if not KINDS[name].lasting:
                raise _Unusable from error

    def _print_fault(self, fault: Fault) -> None:
        down = f", ready {fault.ready - fault.started:.2f} s after its start" if fault.down else ""
        self._say(f"{fault.time:7.1f} s  [bold]{fault.kind}[/] {fault.detail} for {fault.until - fault.time:.1f} s{down}")

    def _phase(self, name: str) -> None:
        self._recorder.write(RunPhase(self._recorder.now(), name))
        self._say(f"{self._recorder.now():7.1f} s  [cyan]{name}[/]")

    def _wait(self, seconds: float) -> None:
        """Wait, and note if the server ends meanwhile, which no fault that is active now may cause."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            if self._recorder.now() >= self._status_due:
                self._status_due = self._recorder.now() + STATUS_SECONDS
                self._say(self._status())
            if not self._testbed.server.is_running:
                raise ServerError(f"it ended by itself, with exit code {self._testbed.server.wait()}")
            if any(worker.failure is not None for worker in self._workers):
                return

    def _status(self) -> str:
        counts = ", ".join(f"{self._recorder.outcomes[outcome]:,} {outcome}" for outcome in CallOutcome)
        usage = self._testbed.server.usage()
        memory = f", server {usage.rss_bytes >> 20} MiB, {usage.files} files" if usage else ""
        return f"{self._recorder.now():7.1f} s  [dim]{counts}{memory}[/]"

    def _say(self, line: str) -> None:
        self._console.print(line)

    def _note_problem(self, what: str) -> None:
        self.problems.append(what)
        self._say(f"[red]{what}[/]")
