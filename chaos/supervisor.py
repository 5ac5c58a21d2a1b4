"""Leads one run through its phases: steady, faults, heal, final reads.

All choices of the schedule come from the seed: which faults, in which order, how long and how far apart. Faults of the process
and of its disk come one after the other; those that last (a slow network, slow syncs, a wrong clock) go on beside them. It
judges nothing: troubles are what makes a run worthless as evidence, such as a worker that broke.
"""

import random
import threading
import time
import traceback
from collections.abc import Iterator, Sequence

from rich.console import Console

from chaos.api import RefusedError, ServerApi
from chaos.faults.kinds import KINDS, possible
from chaos.history import CallOutcome, Fault, RunPhase
from chaos.profiles import Profile
from chaos.server_process import ServerError
from chaos.testbed import Testbed
from chaos.workers.final import FinalReads
from chaos.workers.worker import Worker, WorkerContext
from chaos.workloads import Workload, WorkloadRate

HEAL_SECONDS = 40.0
"""How long is waited for the first success after the last fault. The promise is 30 s; the checker holds the run to it."""
HEALTHY_SECONDS = 3.0
"""How long clients go on after that, at least."""
CALM_SECONDS = 10.0
"""How long the phases without faults last, at most."""
END_SECONDS = 45.0
STATUS_SECONDS = 10.0


class _Unusable(Exception):
    """A fault was caused by half: nobody can say what state the server or its disk is in."""


class RunSupervisor:
    def __init__(
        self, stage: Testbed, profile: Profile, faults: Sequence[str], seed: int, seconds: float, console: Console
    ) -> None:
        self._stage = stage
        self._recorder = stage.recorder
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
        stage.tell = self._tell
        self.troubles: list[str] = []

    def run(self) -> None:
        try:
            self._prepare()
            self._steady()
            self._suffer()
            self._heal()
            self._finish()
        except ServerError as error:
            self._trouble(f"the server: {error}")
        except RefusedError as error:
            self._trouble(f"the server does not do what every run takes for granted: {error}")
        except _Unusable:
            return

    def _prepare(self) -> None:
        self._stage.start()
        site = WorkerContext(self._recorder, self._stage.kafka, self._stage.url)
        load = WorkloadRate(self._profile.load)
        self._workloads = [kind(site, self._seed, load) for kind in self._profile.workloads]
        with ServerApi(self._stage.server.url, timeout=30) as api:
            for workload in self._workloads:
                workload.prepare(api)
                # The first query starts an engine that stays. Nobody is to take it for a leak.
                api.sql(f"SELECT count(*) FROM {workload.topics[0].name}")
        for workload in self._workloads:
            workload.attend(self._stage)
        self._workers = [worker for workload in self._workloads for worker in workload.workers()]

    def _steady(self) -> None:
        self._phase("steady")
        for worker in self._workers:
            worker.start()
        self._wait(min(CALM_SECONDS, self._seconds * 0.15))

    def _suffer(self) -> None:
        self._phase("faults")
        kinds, reasons = possible(self._stage, self._faults)
        for name, reason in reasons.items():
            self._say(f"[yellow]{name} is left out: {reason}[/]")
        until = self._recorder.now() + self._seconds - min(CALM_SECONDS, self._seconds * 0.15) - self._heal_seconds
        names = self._schedule(kinds)
        while kinds and self._recorder.now() < until:
            self._cause(next(names))
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
                self._trouble(f"worker {worker.name} does not end: {worker.whereabouts()}")
            elif worker.failure is not None:
                self._trouble(f"worker {worker.name} broke: {worker.failure}")

    def _finish(self) -> None:
        self._phase("final")
        url, kafka = self._stage.server.url, self._stage.kafka
        with ServerApi(url, timeout=60) as api, FinalReads(self._recorder, api, kafka) as reads:
            for workload in self._workloads:
                workload.finish(api)
                reads.read([topic.name for topic in workload.topics], workload.translate)
        self._stage.stop()
        self._stage.inspect()

    def _schedule(self, kinds: Sequence[str]) -> Iterator[str]:
        """Every kind once, in any order, and again."""
        while True:
            yield from self._choice.sample(kinds, len(kinds))

    def _cause(self, name: str) -> None:
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
            KINDS[name].cause(self._stage, choice)
        except ServerError:
            raise
        except Exception as error:
            self._trouble(f"fault {name}: {traceback.format_exc()}")
            if not KINDS[name].lasting:
                raise _Unusable from error

    def _tell(self, fault: Fault) -> None:
        down = f", ready {fault.ready - fault.started:.2f} s after its start" if fault.down else ""
        self._say(f"{fault.time:7.1f} s  [bold]{fault.kind}[/] {fault.detail} for {fault.until - fault.time:.1f} s{down}")

    def _phase(self, name: str) -> None:
        self._recorder.write(RunPhase(self._recorder.now(), name))
        self._say(f"{self._recorder.now():7.1f} s  [cyan]{name}[/]")

    def _wait(self, seconds: float) -> None:
        """Pass the time, with an eye on the server: nothing that is done to it meanwhile could end it."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            if self._recorder.now() >= self._status_due:
                self._status_due = self._recorder.now() + STATUS_SECONDS
                self._say(self._status())
            if not self._stage.server.is_running:
                raise ServerError(f"it ended by itself, with exit code {self._stage.server.wait()}")
            if any(worker.failure is not None for worker in self._workers):
                return

    def _status(self) -> str:
        counts = ", ".join(f"{self._recorder.outcomes[outcome]:,} {outcome}" for outcome in CallOutcome)
        taken = self._stage.server.taken()
        memory = f", server {taken.rss_bytes >> 20} MiB, {taken.files} files" if taken else ""
        return f"{self._recorder.now():7.1f} s  [dim]{counts}{memory}[/]"

    def _say(self, line: str) -> None:
        self._console.print(line)

    def _trouble(self, what: str) -> None:
        self.troubles.append(what)
        self._say(f"[red]{what}[/]")
