"""Appends of large batches, against plain writes of the same bytes."""

from collections.abc import Sequence

from bench import plain
from bench.audit import check_streams
from bench.batches import KB_16, MB_1, Ring, Shape, ring_of_bytes
from bench.callers import StoreCallers, Took, run_on_loop
from bench.figures import Bar, Figure, Section
from bench.ground import Ground, settle_disk
from bench.measure import alternate
from bench.pipeline import Pipeline
from bench.stores import new_store, new_stream

PARTITIONS = 8
WRITERS = 64

_BAR = Bar("at least", 0.7)


def run_relaxed(ground: Ground) -> Section:
    return Section(
        title="Append, `relaxed`",
        text=f"One thread submits batches, one a commit, to {PARTITIONS} partitions, until the store has no room; then it"
        " waits. The time ends with the last answer. The peers write the same buffers to one new file, one `os.write` a"
        " batch; the second one has a thread beside it that calls `fdatasync` every 100 ms, as `relaxed` does.",
        figures=[figure for shape in (KB_16, MB_1) for figure in _relaxed(ground, shape)],
    )


def run_synced(ground: Ground) -> Section:
    measured = [_synced(ground, shape) for shape in (KB_16, MB_1)]
    return Section(
        title=f"Append, `fsync`, {WRITERS} writers",
        text=f"{WRITERS} callers on one event loop append to {PARTITIONS} partitions; each waits for its answer, which comes"
        " after the sync, before it appends again. The peer replays the groups that the store made of them: one `os.writev`"
        " and one `os.fdatasync` a group.",
        figures=[figure for figure, _ in measured],
        remarks=[remark for _, remark in measured],
    )


def _relaxed(ground: Ground, shape: Shape) -> list[Figure]:
    ring = ring_of_bytes(shape, ground.scale.ring_bytes)

    def ours(count: int) -> float:
        with ground.folder() as folder, new_store(folder, "relaxed") as store:
            stream = new_stream(store, 1, PARTITIONS, ring)
            work = stream.take(count)
            settle_disk()
            seconds = Pipeline(store).send(work)
            check_streams(store, stream)
            return ring.megabytes(count) / seconds

    def written(count: int) -> float:
        with ground.folder() as folder:
            return ring.megabytes(count) / plain.write(folder, ring, count)

    def synced_soon(count: int) -> float:
        with ground.folder() as folder:
            return ring.megabytes(count) / plain.write_synced_soon(folder, ring, count)

    ground.say(f"append, relaxed, {shape.name}")
    rates = alternate(
        {"ours": ours, "written": written, "synced soon": synced_soon},
        ground.scale.append_bytes // ring.batch_bytes,
        ground.scale.rounds,
    )
    name = f"{shape.name} batches"
    return [
        Figure(name=name, ours=rates["ours"], unit="MB/s", peer="`os.write`", peers=rates["written"], bar=_BAR),
        Figure(name=name, ours=rates["ours"], unit="MB/s", peer="`os.write`, synced every 100 ms", peers=rates["synced soon"]),
    ]


def _synced(ground: Ground, shape: Shape) -> tuple[Figure, str]:
    """The figure, and a remark about the groups."""
    ring = ring_of_bytes(shape, ground.scale.ring_bytes)
    groups: list[int] = []

    def ours(count: int) -> float:
        with ground.folder() as folder, new_store(folder, "fsync") as store:
            stream = new_stream(store, 1, PARTITIONS, ring)
            settle_disk()

            async def write() -> Took:
                callers = StoreCallers(store)
                took = await callers.append(stream.take(count), WRITERS)
                groups[:] = callers.groups
                return took

            took = run_on_loop(write)
            check_streams(store, stream)
            return ring.megabytes(count) / took.seconds

    def replayed(_: int) -> float:
        with ground.folder() as folder:
            return ring.megabytes(sum(groups)) / plain.write_groups(folder, ring, groups)

    ground.say(f"append, fsync, {shape.name}")
    sides = {"ours": ours, "replayed": replayed}
    rates = alternate(sides, ground.scale.synced_bytes // ring.batch_bytes, ground.scale.synced_rounds)
    figure = Figure(
        name=f"{shape.name} batches",
        ours=rates["ours"],
        unit="MB/s",
        peer="`os.writev` + `fdatasync` of the same groups",
        peers=rates["replayed"],
        bar=_BAR,
    )
    return figure, _about_groups(shape, ring, groups)


def _about_groups(shape: Shape, ring: Ring, groups: Sequence[int]) -> str:
    mean = sum(groups) / len(groups)
    return (
        f"{shape.name}: in the last round {mean:.1f} commits ({ring.megabytes(mean):.2f} MB) shared a sync on average,"
        f" from {min(groups)} to {max(groups)}."
    )
