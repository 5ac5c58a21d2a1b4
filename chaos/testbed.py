"""The testbed of a run: the server, its disk, the network in front of it, and the shim around its system calls.

Faults act on it and workloads prepare it. Both are written to the history here, so that none is missing.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos.database import DatabaseProcess
from chaos.disk import Disk
from chaos.faults.shim import Shim
from chaos.history import Fault, FsckInspection, ResourceSample, ServerStopped
from chaos.other_kafka import OtherKafkaProcess
from chaos.pipeline import PipelineProcess
from chaos.recorder import Recorder
from chaos.server_process import ServerProcess
from tests.support.proxy import FaultyProxy

SAMPLE_SECONDS = 1.0
FSCK_SECONDS = 60.0


class Testbed:
    """Used as `with Testbed(home, recorder) as testbed:`. The server is started by `start`."""

    def __init__(self, home: Path, recorder: Recorder, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.recorder = recorder
        self.disk = Disk(home)
        self.shim = Shim(home)
        self.database = DatabaseProcess()
        self.other_kafka = OtherKafkaProcess(home)
        self.server = ServerProcess(
            self.disk.folder,
            home / "server.log",
            environment={**self.shim.environment, **self.database.environment, **(environment or {})},
        )
        self.kafka_network = FaultyProxy(f"http://{self.server.kafka}")
        self.http_network = FaultyProxy(self.server.url)
        self.pipeline = PipelineProcess(home)
        self.keep: Path | None = None
        """Where to copy the server's folder at the end, if anywhere."""
        self.on_fault: Callable[[Fault], None] = lambda fault: None
        """Called with each fault when it is over."""
        self._started = -1.0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="sampler", daemon=True)

    def __enter__(self) -> "Testbed":
        self.kafka_network.__enter__()
        self.http_network.__enter__()
        self.server.advertise = self.kafka
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()
        self.pipeline.close()
        if self.server.is_running:
            self.server.kill()
        for network in (self.kafka_network, self.http_network):
            network.__exit__()
        self.database.close()
        self.other_kafka.close()
        self.shim.close()
        self.disk.close(self.keep)

    @property
    def kafka(self) -> str:
        """The address for Kafka clients, behind the faulty network."""
        return self.kafka_network.url.removeprefix("http://")

    @property
    def url(self) -> str:
        return self.http_network.url

    @contextmanager
    def fault(self, kind: str, detail: str = "", *, down: bool = False) -> Iterator[None]:
        """Record a fault that is active while the body runs. `down`: the body ends with the server ready again."""
        began = self.recorder.now()
        try:
            yield
        finally:
            until = self.recorder.now()
            started, ready = (self._started, until) if down else (-1.0, -1.0)
            fault = Fault(began, kind, detail, until=until, ready=ready, down=down, started=started)
            self.recorder.write(fault)
            self.on_fault(fault)

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        self._started = self.recorder.now()
        self.server.start()

    def stop(self) -> None:
        """Stop the server with SIGTERM and record how long it took."""
        began = time.monotonic()
        code = self.server.terminate()
        self.recorder.write(ServerStopped(self.recorder.now(), round(time.monotonic() - began, 3), code))

    def inspect(self, folder: Path | None = None, *, damaged: bool = False) -> tuple[str, ...]:
        """Run `tailrace fsck` on the server's folder, or on a copy that was damaged on purpose, and record the findings."""
        command = [sys.executable, "-m", "tailrace", "fsck", str(folder or self.disk.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FSCK_SECONDS)
        findings = tuple(line for line in done.stdout.splitlines() if line.startswith("wrong: "))
        if done.returncode and not findings:
            findings = (f"exit code {done.returncode}: {done.stderr.strip()[-300:]}",)
        self.recorder.write(FsckInspection(self.recorder.now(), findings, damaged))
        return findings

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            usage = self.server.usage() if self.server.is_running else None
            if usage is not None:
                self.recorder.write(ResourceSample(self.recorder.now(), *usage, self.disk.used_bytes()))
            self.recorder.flush()
