"""A correct system, in memory, and workers that use it: they make histories that must pass.

Workers are generators: between two steps of one, any other may go on, so that calls overlap and take effect anywhere between
their invocation and their completion, or after it if their outcome is unknown.
"""

from collections import defaultdict
from collections.abc import Callable, Generator
from enum import Enum
from random import Random
from typing import NamedTuple

from chaos.history import (
    DELETED,
    BoundsCall,
    CallOutcome,
    ChangeCall,
    CommitCall,
    CommittedCall,
    OwnedCall,
    PollCall,
    RecordLocation,
    RowsCall,
    SeenRecord,
    SendCall,
    SettleCall,
    TakeCall,
    TransactionCall,
)
from tests.unit.chaos.histories import FAILED, OK, UNKNOWN, Story

Partition = tuple[str, int]
Steps = Generator[None, None, None]

PLAIN: tuple[Partition, ...] = (("t", 0), ("t", 1), ("u", 0), ("short", 0), ("queue", 0))
OWN, ROUTED = ("orders.changes", 0), ("shipping", 0)
GROUP_PARTITIONS: tuple[Partition, ...] = (("t", 0), ("t", 1))
MEMBERS = ("m1", "m2")


class Status(Enum):
    OPEN = "open"
    VISIBLE = "visible"
    HIDDEN = "hidden"
    """An aborted record, or the end of a transaction."""


class Entry:
    def __init__(self, value: str, key: str | None, cursor: int, status: Status) -> None:
        self.value = value
        self.key = key
        self.cursor = cursor
        self.status = status


class Log:
    def __init__(self) -> None:
        self.entries: dict[Partition, list[Entry]] = defaultdict(list)
        self.starts: dict[Partition, int] = defaultdict(int)
        self._cursor = 0

    def append(
        self, partition: Partition, value: str, key: str | None = None, status: Status = Status.VISIBLE
    ) -> RecordLocation:
        entry = Entry(value, key, self._cursor, status)
        self._cursor += 1
        self.entries[partition].append(entry)
        return RecordLocation(*partition, len(self.entries[partition]) - 1)

    def read(self, partition: Partition, position: int, count: int, committed: bool) -> tuple[list[SeenRecord], int]:
        """Return the records from a position on, and the next position."""
        found: list[SeenRecord] = []
        entries = self.entries[partition]
        while position < len(entries) and len(found) < count:
            entry = entries[position]
            if committed and entry.status is Status.OPEN:
                break
            aborted = entry.status is Status.HIDDEN and entry.value
            if entry.status is Status.VISIBLE or (not committed and (entry.status is Status.OPEN or aborted)):
                found.append(SeenRecord(RecordLocation(*partition, position), entry.value, entry.cursor, entry.key))
            position += 1
        return found, position


class Fortune(NamedTuple):
    """The outcome of a call, and whether it takes effect."""

    outcome: CallOutcome
    applied: bool
    late: bool = False


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.story = Story()
        self.log = Log()
        self.generation = 1
        self.owners = dict.fromkeys(GROUP_PARTITIONS, "m1")
        self.committed: dict[Partition, int] = {}
        self.rows: dict[str, str] = {}
        self.routed = 0
        self.taken: dict[int, str] = {}
        self.acked: set[int] = set()
        self._values = 0

    def value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def fortune(self) -> Fortune:
        return self.random.choices(
            [
                Fortune(OK, True),
                Fortune(FAILED, False),
                Fortune(UNKNOWN, False),
                Fortune(UNKNOWN, True),
                Fortune(UNKNOWN, True, True),
            ],
            [80, 5, 5, 5, 5],
        )[0]

    def write(self, call: int, apply: Callable[[], tuple[RecordLocation, ...]]) -> Steps:
        """Make a call that writes, from its invocation to its completion."""
        fortune = self.fortune()
        yield
        locations = apply() if fortune.applied and not fortune.late else ()
        yield
        self.story.end(call, fortune.outcome, locations=locations if fortune.outcome is OK else ())
        yield
        if fortune.late:
            apply()


def sender(world: World, name: str) -> Steps:
    while True:
        partitions = world.random.choices(PLAIN, k=world.random.randint(1, 3))
        records = [(partition, world.value()) for partition in partitions]
        atomic = world.random.random() < 0.5
        call = world.story.begin(
            SendCall(tuple((RecordLocation(*partition, -1), value) for partition, value in records), atomic=atomic), name
        )

        def append(records: list[tuple[Partition, str]] = records) -> tuple[RecordLocation, ...]:
            return tuple(world.log.append(*record) for record in records)

        yield from world.write(call, append)
        yield


def transactor(world: World, name: str) -> Steps:
    while True:
        records = [(partition, world.value()) for partition in world.random.sample(PLAIN[:3], k=2)]
        aborted = world.random.random() < 0.3
        what = TransactionCall(
            name, tuple((RecordLocation(*partition, -1), value) for partition, value in records), aborted=aborted
        )
        call = world.story.begin(what, name)
        yield
        locations = [world.log.append(partition, value, status=Status.OPEN) for partition, value in records]
        entries = [world.log.entries[location.topic, location.partition][location.offset] for location in locations]
        yield

        def conclude(
            entries: list[Entry] = entries, locations: list[RecordLocation] = locations, aborted: bool = aborted
        ) -> tuple[RecordLocation, ...]:
            for entry, location in zip(entries, locations, strict=True):
                entry.status = Status.HIDDEN if aborted else Status.VISIBLE
                world.log.append((location.topic, location.partition), "", status=Status.HIDDEN)
            return tuple(locations)

        yield from world.write(call, conclude)
        for entry in entries:
            if entry.status is Status.OPEN:
                entry.status = Status.HIDDEN


def reader(world: World, name: str) -> Steps:
    sessions = 0
    while True:
        sessions += 1
        partition = world.random.choice(PLAIN)
        committed = world.random.random() < 0.5
        position = world.log.starts[partition]
        begins = (RecordLocation(*partition, position),)
        for _ in range(world.random.randint(2, 12)):
            call = world.story.begin(PollCall(f"{name}.{sessions}", committed=committed, begins=begins), name)
            yield
            below = position < world.log.starts[partition]
            seen: list[SeenRecord] = []
            if not below:
                seen, after = world.log.read(partition, position, world.random.randint(1, 5), committed)
            yield
            out_of_range = (RecordLocation(*partition, position),) if below else ()
            world.story.end(call, seen=tuple(seen), out_of_range=out_of_range)
            yield
            if below:
                break
            position = after


def member(world: World, name: str) -> Steps:
    generation = 0
    positions: dict[Partition, int] = {}
    while True:
        if world.random.random() < 0.3 and generation != world.generation:
            generation = world.generation
            positions = {one: world.committed.get(one, 0) for one, owner in world.owners.items() if owner == name}
            locations = tuple(RecordLocation(*partition, -1) for partition in positions)
            world.story.call(OwnedCall("g", name, generation), OK, name, locations=locations)
        for partition, position in list(positions.items()):
            call = world.story.begin(PollCall(f"{name}.{generation}", subscribed=True, committed=True), name)
            yield
            seen, positions[partition] = world.log.read(partition, position, 4, committed=True)
            world.story.end(call, seen=tuple(seen))
        yield
        if positions:
            offsets = tuple(RecordLocation(*partition, position) for partition, position in positions.items())
            call = world.story.begin(CommitCall("g", offsets, generation), name)
            yield
            if generation == world.generation:
                world.committed.update(positions)
                yield
                world.story.end(call)
            else:
                world.story.end(call, FAILED)
        yield


def rebalancer(world: World, name: str) -> Steps:
    while True:
        for _ in range(40):
            yield
        world.generation += 1
        world.owners = {partition: world.random.choice(MEMBERS) for partition in GROUP_PARTITIONS}


def asker(world: World, name: str) -> Steps:
    """Asks for bounds and committed offsets, and moves the start of the short topic."""
    short = ("short", 0)
    while True:
        call = world.story.begin(BoundsCall(tuple({topic for topic, _ in PLAIN})), name)
        yield
        starts = tuple(RecordLocation(*partition, world.log.starts[partition]) for partition in PLAIN)
        ends = tuple(RecordLocation(*partition, len(world.log.entries[partition])) for partition in PLAIN)
        yield
        world.story.end(call, starts=starts, ends=ends)
        call = world.story.begin(CommittedCall("g"), name)
        yield
        locations = tuple(RecordLocation(*partition, world.committed.get(partition, -1)) for partition in GROUP_PARTITIONS)
        yield
        world.story.end(call, locations=locations)
        if world.random.random() < 0.2:
            world.log.starts[short] = world.random.randint(world.log.starts[short], len(world.log.entries[short]))
        yield


def table_writer(world: World, name: str) -> Steps:
    while True:
        keys = world.random.sample("abcdef", k=world.random.randint(1, 3))
        rows = {key: None if world.random.random() < 0.2 else world.value() for key in keys}
        call = world.story.begin(ChangeCall(tuple(("orders", key, value) for key, value in rows.items())), name, "sql")

        def apply(rows: dict[str, str | None] = rows) -> tuple[RecordLocation, ...]:
            for key, value in rows.items():
                if value is not None:
                    world.rows[key] = value
                elif world.rows.pop(key, None) is None:
                    continue
                world.log.append(OWN, DELETED if value is None else value, key)
            return ()

        yield from world.write(call, apply)
        call = world.story.begin(RowsCall("orders"), name, "sql")
        yield
        read = tuple(world.rows.items())
        yield
        world.story.end(call, rows=read)


def router(world: World, name: str) -> Steps:
    while True:
        for entry in world.log.entries[OWN][world.routed :]:
            world.log.append(ROUTED, entry.value, entry.key)
            world.routed += 1
        yield


def queue_worker(world: World, name: str) -> Steps:
    while True:
        call = world.story.begin(TakeCall("q"), name, "queue")
        yield
        free = [one for one in range(len(world.log.entries["queue", 0])) if one not in world.acked and one not in world.taken]
        mine = free[:3]
        world.taken.update(dict.fromkeys(mine, name))
        yield from settle(world, name, call, mine)


def settle(world: World, name: str, call: int, mine: list[int]) -> Steps:
    entries = world.log.entries["queue", 0]
    world.story.end(call, seen=tuple(SeenRecord(RecordLocation("queue", 0, offset), entries[offset].value) for offset in mine))
    yield
    acked = world.random.random() < 0.8
    call = world.story.begin(SettleCall("q", tuple(entries[offset].value for offset in mine), acked), name, "queue")

    def apply() -> tuple[RecordLocation, ...]:
        if acked:
            world.acked.update(mine)
        return ()

    fortune = world.fortune()
    yield
    if fortune.applied:
        apply()
    yield
    world.story.end(call, fortune.outcome)
    for offset in mine:
        world.taken.pop(offset, None)
    yield


def finish(world: World) -> None:
    """Make the final reads, on three surfaces, and empty the queue."""
    story, log = world.story, world.log
    story.phase("final")
    for _ in range(2):
        next(router(world, "router"))
    entries = log.entries["queue", 0]
    left = [offset for offset in range(len(entries)) if offset not in world.acked]
    story.call(
        TakeCall("q", final=True),
        OK,
        "drain",
        "queue",
        seen=tuple(SeenRecord(RecordLocation("queue", 0, one), entries[one].value) for one in left),
    )
    story.call(SettleCall("q", tuple(entries[offset].value for offset in left)), OK, "drain", "queue")
    story.call(TakeCall("q", final=True), OK, "drain", "queue")
    for surface in ("kafka", "http", "sql"):
        for partition in (*PLAIN, OWN, ROUTED):
            seen, _ = log.read(partition, log.starts[partition], 1 << 30, committed=True)
            what = PollCall(f"final {partition}", committed=True, final=True)
            story.call(what, OK, f"final {surface}", surface, seen=tuple(seen))
    starts = tuple(RecordLocation(*partition, log.starts[partition]) for partition in PLAIN)
    ends = tuple(RecordLocation(*partition, len(log.entries[partition])) for partition in PLAIN)
    story.call(BoundsCall(("t", "u", "short", "queue")), starts=starts, ends=ends)
    story.call(RowsCall("orders", final=True), surface="sql", rows=tuple(world.rows.items()))


def right_history(seed: int, steps: int) -> Story:
    world = World(seed)
    world.story.declare("short", kept=False)
    world.story.declare(OWN[0], table="orders")
    world.story.declare(ROUTED[0], table="orders", routed=True)
    world.story.phase("steady")
    workers = [
        *(work(world, f"{work.__name__}{number}") for work in (sender, transactor, reader, queue_worker) for number in (1, 2)),
        *(member(world, name) for name in MEMBERS),
        *(work(world, work.__name__) for work in (rebalancer, asker, table_writer, router)),
    ]
    for _ in range(steps):
        next(world.random.choice(workers))
    for worker in workers:
        # What is under way is cut off, as by a kill: calls stay without a completion, transactions end by timeout.
        worker.close()
    for entries in world.log.entries.values():
        for entry in entries:
            if entry.status is Status.OPEN:
                entry.status = Status.HIDDEN
    finish(world)
    return world.story
