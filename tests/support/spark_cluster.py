"""A standalone master of Spark with workers, on loopback, whose Python has nothing installed."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from tailrace.pipeline.java import find_java
from tests.support.eventually import eventually
from tests.support.logged_process import session_members
from tests.support.ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1"}
"""For the driver: executors are to reach it by loopback."""
_CHOSEN = ("PYSPARK_PYTHON", "PYTHONPATH", "SPARK_CONF_DIR", "VIRTUAL_ENV")
_START_SECONDS = 120.0


class StandaloneCluster:
    """`with StandaloneCluster(folder) as cluster:` starts a master and a worker; `cluster.url` is for `--master`."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        """`python` is whose version the workers have."""
        folder.mkdir()
        self._folder = folder
        subprocess.run([python, "-m", "venv", "--without-pip", folder / "bare"], check=True, timeout=100)
        self.python = folder / "bare" / "bin" / "python"
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "--port", str(port))
        self._await("master", "I have been elected leader")

    def __enter__(self) -> "StandaloneCluster":
        self.start_worker()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._processes:
            self._kill(self._processes.pop())

    def start_worker(self) -> None:
        """Start a worker, with room for one executor."""
        name = f"worker-{len(self._processes)}"
        self._start(name, "-c", "2", "-m", "600m", "-d", str(self._folder / name), self.url)
        self._await(name, "Successfully registered with master")

    def kill_worker(self) -> None:
        """Kill the last worker with its executors and their Python workers, as if its machine had failed."""
        self._kill(self._processes.pop())

    def _start(self, name: str, *arguments: str) -> None:
        kind = name.partition("-")[0]
        environment = {name: value for name, value in os.environ.items() if name not in _CHOSEN}
        java: Mapping[str, str | None] = find_java().environment
        environment |= {name: value for name, value in java.items() if value is not None}
        environment |= {**LOCAL, "SPARK_HOME": str(SPARK_HOME), "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        with self._log(name).open("wb") as log:
            command = [f"{SPARK_HOME}/bin/spark-class", f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"]
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )
        self._processes.append(process)

    def _await(self, name: str, text: str) -> None:
        log = self._log(name)
        eventually(lambda: text in log.read_text() or self._processes[-1].poll() is not None, text, _START_SECONDS)
        assert text in log.read_text(), log.read_text()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        for pid in session_members(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
