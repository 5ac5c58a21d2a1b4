"""The cost of one append, including its share of the next checkpoint, as the log or the number of partitions grows."""

import time
from contextlib import ExitStack

from bench.audit import check_streams, new_store, new_stream
from bench.batches import KB_1, KB_16, Ring, Stream, ring_of_bytes, ring_of_copies
from bench.figures import FLAT, Bar, Curve, Figure, Point, Samples, Section, Side, alternate, curve, ratios, slope_figure
from bench.scale import GIB
from bench.workspace import Workspace, settle_disk
from bench.writers import PipelinedWriter
from tailrace.store.embedded import EmbeddedStore

DISTINCT = 65_536
"""The number of batches in a ring: more than fit into the processor's caches."""


def cost_in(store: EmbeddedStore, stream: Stream) -> Side:
    """Return the microseconds of one append."""

    def measure(appends: int) -> float:
        work = stream.take(appends)
        settle_disk()
        began = time.perf_counter()
        PipelinedWriter(store).send(work)
        store.checkpoint()
        return (time.perf_counter() - began) / appends * 1e6

    return measure


PARTITIONS = 8
SPARE_BYTES = 4 * GIB

_FILL, _MEASURED = 1, 2


def run_log_size(workspace: Workspace) -> Section:
    figures, remarks, points = _by_size(workspace)
    grown = Curve(name="append", grows="GiB of log", unit="of a new log's cost", points=points)
    has_slope = sum(point.at > 0 for point in points) > 1
    return Section(
        title="Growth: length of the log",
        text=f"Time for one append of a {KB_1.name} batch: {workspace.scale.growth_appends:,} of them (`relaxed`, one thread),"
        " with the checkpoint that saves their index, divided by their number. The peer is Tailrace itself in the same round,"
        f" with a new log. The log is filled with {KB_16.name} batches.",
        figures=[*figures, slope_figure(grown, FLAT)] if has_slope else figures,
        remarks=remarks,
        curves=[grown] if has_slope else [],
    )


def _by_size(workspace: Workspace) -> tuple[list[Figure], list[str], list[Point]]:
    """Return the figures, a remark on each skipped size, and the costs relative to a new log's."""
    measured = ring_of_copies(KB_1, DISTINCT)
    figures = []
    remarks = []
    points = [Point(0, Samples((1.0,) * workspace.scale.rounds))]
    with workspace.folder() as folder, new_store(folder, "relaxed") as store:
        fill = new_stream(store, _FILL, PARTITIONS, ring_of_bytes(KB_16, workspace.scale.ring_bytes))
        stream = new_stream(store, _MEASURED, PARTITIONS, measured)
        for size in workspace.scale.log_sizes:
            needed = size - fill.bytes + SPARE_BYTES
            if workspace.free_bytes < needed:
                remarks.append(f"{size / GIB:g} GiB: skipped, the disk has less than {needed / GIB:.0f} GiB free.")
                continue
            workspace.say(f"growth, {size / GIB:g} GiB")
            PipelinedWriter(store).send(fill.each((size - fill.bytes) // fill.ring.batch_bytes))
            store.checkpoint()
            costs = alternate(
                {"long": cost_in(store, stream), "new": lambda appends: _cost_in_new_log(workspace, measured, appends)},
                workspace.scale.growth_appends,
                workspace.scale.rounds,
            )
            figures.append(
                Figure(
                    name=f"append, {size / GIB:g} GiB of log",
                    ours=costs["long"],
                    unit="µs",
                    peer="a new log",
                    peers=costs["new"],
                    bar=Bar("at most", 1.25),
                )
            )
            points.append(Point(size / GIB, ratios(costs["long"], costs["new"])))
        check_streams(store, fill, stream)
    return figures, remarks, points


def _cost_in_new_log(workspace: Workspace, ring: Ring, appends: int) -> float:
    with workspace.folder() as folder, new_store(folder, "relaxed") as store:
        stream = new_stream(store, _MEASURED, PARTITIONS, ring)
        cost = cost_in(store, stream)(appends)
        check_streams(store, stream)
        return cost


_TOPIC = 1


def run_partition_count(workspace: Workspace) -> Section:
    scale = workspace.scale
    ring = ring_of_copies(KB_1, DISTINCT)
    cases: dict[str, tuple[EmbeddedStore, Stream]] = {}
    with ExitStack() as stack:
        for count in scale.partition_counts:
            store = stack.enter_context(new_store(stack.enter_context(workspace.folder()), "relaxed"))
            cases[f"{count:,}"] = store, new_stream(store, _TOPIC, count, ring)
        workspace.say("growth, partitions")
        sides = {name: cost_in(store, stream) for name, (store, stream) in cases.items()}
        costs = alternate(sides, scale.growth_appends, scale.rounds)
        for store, stream in cases.values():
            check_streams(store, stream)
    grown = curve("append", "partitions", "µs", {count: costs[f"{count:,}"].values for count in scale.partition_counts})
    fewest, *more = cases
    return Section(
        title="Growth: partitions",
        text=f"Time for one append of a {KB_1.name} batch: {scale.growth_appends:,} of them (`relaxed`, one thread) to all"
        " partitions in turn, with the checkpoint that saves their index, divided by their number. The peer is Tailrace itself"
        " in the same round, with the fewest partitions.",
        figures=[
            *(
                Figure(
                    name=f"append, {count} partitions",
                    ours=costs[count],
                    unit="µs",
                    peer=f"{fewest} partition",
                    peers=costs[fewest],
                    bar=Bar("at most", 1.25),
                )
                for count in more
            ),
            slope_figure(grown, FLAT),
        ],
        curves=[grown],
    )
