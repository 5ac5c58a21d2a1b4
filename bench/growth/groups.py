"""What it costs to commit an offset when there are many groups."""

from contextlib import ExitStack
from functools import partial

from bench.audit import AuditFailure
from bench.batches import Shape, ring_of_copies
from bench.callers import Took, call_in_turn
from bench.figures import Section
from bench.ground import Ground, settle_disk
from bench.growth.flatness import FLAT, curve, slope_figure
from bench.growth.looped_broker import LoopedBroker
from bench.measure import take_turns
from tailrace.model.errors import TailraceError
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset
from tailrace.model.record import RawBatch

_CALLERS = 64
_TOPIC = "read.by_all"
_FILLING = Shape("filling", 1_000, 16)


def run(ground: Ground) -> Section:
    scale = ground.scale.growth
    with ExitStack() as stack:
        crowds = {}
        for count in scale.groups:
            looped = stack.enter_context(LoopedBroker(stack.enter_context(ground.folder()) / "data", groups=count))
            looped.run(_fill(looped, scale.commits * (scale.rounds + 1)))
            crowds[count] = _Groups(looped, [f"group-{number}" for number in range(count)])
        ground.say("growth, groups")
        sides = {str(count): partial(_turn, groups) for count, groups in crowds.items()}
        found = take_turns(sides, scale.commits, scale.rounds)
        for groups in crowds.values():
            groups.check()
    share = 1e6 / scale.commits
    seconds = {count: [each.seconds * share for each in found[str(count)]] for count in crowds}
    cpu_seconds = {count: [each.cpu_seconds * share for each in found[str(count)]] for count in crowds}
    times = curve("commit", "groups", "µs", seconds)
    costs = curve("commit, CPU", "groups", "µs", cpu_seconds)
    return Section(
        title="Growth: groups",
        text=f"{scale.commits:,} commits of one offset each, by all groups in turn, through the broker (`relaxed`, {_CALLERS}"
        " callers): the time for each, and the CPU of all threads of the process, callers included. Afterwards every group is"
        " asked where it has come to.",
        figures=[slope_figure(times), slope_figure(costs, FLAT)],
        curves=[times, costs],
    )


class _Groups:
    """Commit higher and higher offsets, one group after the other."""

    def __init__(self, looped: LoopedBroker, names: list[str]) -> None:
        self.looped = looped
        self._names = names
        self._commits = 0

    async def commit(self, commits: int) -> Took:
        offsets = self.looped.broker.offsets
        numbers = range(self._commits, self._commits + commits)
        self._commits += commits
        work = [
            (self._names[number % len(self._names)], [OffsetCommit(_TOPIC, 0, Offset(number // len(self._names)))])
            for number in numbers
        ]

        async def commit(wanted: tuple[str, list[OffsetCommit]]) -> None:
            await offsets.commit(*wanted)

        return await call_in_turn(commit, work, _CALLERS)

    def check(self) -> None:
        for nth, name in enumerate(self._names):
            turns = (self._commits - nth + len(self._names) - 1) // len(self._names)
            found = self.looped.broker.offsets.committed(name, _TOPIC, 0)
            if (found.offset if found else -1) != turns - 1:
                raise AuditFailure(f"{name} committed {turns - 1}, and {found} is there")


async def _fill(looped: LoopedBroker, records: int) -> None:
    """No group may commit beyond the end of a partition."""
    await looped.broker.topics.create(_TOPIC, 1)
    for batch in ring_of_copies(_FILLING, -(-records // _FILLING.records)).batches:
        (outcome,) = await looped.broker.appender.append([RawBatch(_TOPIC, 0, batch)])
        if isinstance(outcome, TailraceError):
            raise outcome


def _turn(groups: _Groups, commits: int) -> Took:
    settle_disk()
    return groups.looped.run(groups.commit(commits))
