"""Processes that a server starts beside itself: started, started again, and ended."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace import child_processes
from tailrace.child_processes import ChildProcesses, ask_process
from tailrace.model.clock import SystemClock
from tailrace.model.shadow import ShadowToCheck
from tests.support.aio import on_loop, until
from tests.support.shadows import drafted


class Thing(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    told: str = ""


class Things:
    """What has processes, in a test."""

    what = "the work of thing"

    def __init__(self) -> None:
        self.things: dict[int, Thing] = {}
        self.exits: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    def wanted(self) -> Mapping[int, Thing]:
        return dict(self.things)

    def name(self, one: Thing) -> str:
        return one.name

    def command(self, one: Thing) -> list[str]:
        return list(one.arguments)

    def needs_restart(self, before: Thing, now: Thing) -> bool:
        return before.arguments != now.arguments

    def note_exit(self, one: Thing, why: str) -> None:
        self.exits.append((one.name, why))

    def want(self, **things: Thing) -> None:
        self.things = {int(number.removeprefix("n")): thing for number, thing in things.items()}
        self.changed.set()


def serving(folder: Path, name: str = "a", told: str = "") -> Thing:
    return Thing(name, ("serve", "--data", str(folder), "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0"), told)


def processes_on(folder: Path) -> list[int]:
    """Return the ids of processes that have this folder in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder).encode() in command and b"serve" in command:
            found.append(int(process.name))
    return found


@on_loop
async def test_a_process_runs_as_long_as_it_is_wanted(tmp_path: Path) -> None:
    things = Things()
    children = ChildProcesses(things, SystemClock())
    children.start()
    first, second = tmp_path / "first", tmp_path / "second"
    things.want(n1=serving(first), n2=serving(second))
    await until(lambda: len(processes_on(first)) == len(processes_on(second)) == 1)
    (pid,) = processes_on(first)
    # What a process is told by other ways does not end it; what it has to be started with does.
    things.want(n1=serving(first, told="something"), n2=serving(second))
    third = tmp_path / "third"
    things.want(n1=serving(first, told="something"), n2=serving(third))
    await until(lambda: not processes_on(second) and len(processes_on(third)) == 1)
    assert processes_on(first) == [pid]
    things.want(n2=serving(third))
    await until(lambda: not processes_on(first))
    await children.close()
    assert processes_on(third) == []
    assert things.exits == []


@on_loop
async def test_a_process_that_ends_is_started_again_after_a_growing_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "_FIRST_PAUSE_SECONDS", 0.01)
    things = Things()
    children = ChildProcesses(things, SystemClock())
    children.start()
    folder = tmp_path / "data"
    things.want(n1=serving(folder), n2=Thing("b", ("serve", "--data", str(tmp_path / "x"), "--http", "nowhere")))
    await until(lambda: len(processes_on(folder)) == 1)
    (pid,) = processes_on(folder)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: len(processes_on(folder)) == 1 and processes_on(folder) != [pid])
    await until(lambda: sum(name == "b" for name, _ in things.exits) >= 2)
    assert ("a", "the process ended with exit code -9") in things.exits
    # The last line that it has printed says why.
    assert all("nowhere" in why for name, why in things.exits if name == "b")
    await children.close()
    assert processes_on(folder) == []


@on_loop
async def test_a_check_whose_process_fails_is_a_failed_check() -> None:
    asked = ShadowToCheck(shadow=drafted(), kafka="127.0.0.1:1", cluster_id="x")
    (check,) = await ask_process("tailrace.no_such_module", "check", asked, "the Kafka")
    assert (check.name, check.result) == ("check", "failed")
    assert "No module named tailrace.no_such_module" in check.detail
