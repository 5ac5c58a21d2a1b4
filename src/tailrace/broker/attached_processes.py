"""Processes beside the server that each look after one thing of it, such as the capture of a source: which one does it now,
and what it has reported about itself.

A process attaches and gets an epoch, which its requests carry. One that attaches later takes over, and requests of the one
before are refused from then on. Nothing of it is stored: after a restart of the server the first report is believed.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tailrace.model.clock import Clock

R = TypeVar("R", bound=msgspec.Struct)
"""A report, which has at least `state`, `error` and `advice`."""


class ProcessStatus(NamedTuple, Generic[R]):
    """What is known of a process."""

    report: R
    """With the state `stopped` if it was not heard of for too long."""
    owner: str | None = None
    """Describes the process for people. `None` if none was heard of since the server was started."""
    seen_ms: int = 0


class AttachedProcesses(Generic[R]):
    """Used on the event loop."""

    def __init__(self, reports: type[R], clock: Clock, silence_seconds: int) -> None:
        """`reports` is the class of the reports."""
        self._reports = reports
        self._clock = clock
        self._silence_seconds = silence_seconds
        self._processes: dict[int, _Process] = {}

    def attach(self, number: int, owner: str) -> int:
        """Note that a process looks after the thing of this number, and return its epoch."""
        before = self._processes.get(number)
        # Beyond those that were given before the server was started, which are not known any more.
        epoch = max(self._clock.now_ms(), 0 if before is None else before.epoch + 1)
        process = self._processes[number] = _Process(owner, epoch, self._reports())
        self._mark_seen(process)
        return epoch

    def successor(self, number: int, epoch: int) -> str | None:
        """Return who took over from the process of this epoch, or `None` if nobody did."""
        process = self._processes.get(number)
        return process.owner if process is not None and process.epoch not in (0, epoch) else None

    def report(self, number: int, epoch: int, owner: str, report: R) -> None:
        """Take a report as a heartbeat."""
        process = self._processes.setdefault(number, _Process(owner, epoch, report))
        process.owner, process.epoch, process.report = owner, epoch, report
        self._mark_seen(process)

    def note_exit(self, number: int, why: str) -> None:
        """Note that the process has ended, and is started again."""
        process = self._processes.setdefault(number, _Process("", 0, self._reports()))
        if process.report.state not in ("failed", "retrying"):
            advice = "It is started again by itself. The log of the server has more"
            process.report = msgspec.structs.replace(process.report, state="retrying", error=why, advice=advice)
        self._mark_seen(process)

    def forget(self, number: int) -> None:
        """Forget the process: what it looked after was dropped."""
        self._processes.pop(number, None)

    def last_report(self, number: int) -> R | None:
        """Return the last report, however old it is."""
        process = self._processes.get(number)
        return None if process is None else process.report

    def status(self, number: int, what: str) -> ProcessStatus[R]:
        """Return what is known of the process; `what` is the word for it: `capture`."""
        process = self._processes.get(number)
        if process is None:
            return ProcessStatus(msgspec.structs.replace(self._reports(), state="stopped"))
        report = process.report
        if self._clock.monotonic() - process.seen_at > self._silence_seconds:
            report = msgspec.structs.replace(
                report,
                state="stopped",
                error=report.error or f"the {what} has not reported for {self._silence_seconds} s",
                advice=report.advice or f"Check the {what}, and its log",
            )
        return ProcessStatus(report, process.owner, process.seen_ms)

    def _mark_seen(self, process: "_Process") -> None:
        process.seen_at = self._clock.monotonic()
        process.seen_ms = self._clock.now_ms()


class _Process:
    __slots__ = ("epoch", "owner", "report", "seen_at", "seen_ms")

    def __init__(self, owner: str, epoch: int, report: Any) -> None:
        self.owner = owner
        self.epoch = epoch
        self.report = report
        self.seen_at = 0.0
        self.seen_ms = 0
