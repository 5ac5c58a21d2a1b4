"""What one append costs when the log is long."""

from bench.audit import check_streams
from bench.batches import KB_1, KB_16, Ring, ring_of_bytes, ring_of_copies
from bench.curves import Curve, Point
from bench.figures import Bar, Figure, Section
from bench.ground import Ground
from bench.growth.append_cost import DISTINCT, cost_in
from bench.growth.flatness import FLAT, slope_figure
from bench.measure import Samples, alternate, ratios
from bench.pipeline import Pipeline
from bench.scale import GIB
from bench.stores import new_store, new_stream

PARTITIONS = 8
SPARE_BYTES = 4 * GIB

_FILL, _MEASURED = 1, 2


def run(ground: Ground) -> Section:
    figures, remarks, points = _by_size(ground)
    grown = Curve(name="append", grows="GiB of log", unit="of a new log's cost", points=points)
    has_slope = sum(point.at > 0 for point in points) > 1
    return Section(
        title="Growth: length of the log",
        text=f"Time for one append of a {KB_1.name} batch: {ground.scale.growth_appends:,} of them (`relaxed`, one thread),"
        " with the checkpoint that saves their index, divided by their number. The peer is Tailrace itself in the same round,"
        f" with a new log. The log is filled with {KB_16.name} batches.",
        figures=[*figures, slope_figure(grown, FLAT)] if has_slope else figures,
        remarks=remarks,
        curves=[grown] if has_slope else [],
    )


def _by_size(ground: Ground) -> tuple[list[Figure], list[str], list[Point]]:
    """The figures, a remark on each size that was skipped, and the costs in terms of a new log's."""
    measured = ring_of_copies(KB_1, DISTINCT)
    figures = []
    remarks = []
    points = [Point(0, Samples((1.0,) * ground.scale.rounds))]
    with ground.folder() as folder, new_store(folder, "relaxed") as store:
        fill = new_stream(store, _FILL, PARTITIONS, ring_of_bytes(KB_16, ground.scale.ring_bytes))
        stream = new_stream(store, _MEASURED, PARTITIONS, measured)
        for size in ground.scale.log_sizes:
            needed = size - fill.bytes + SPARE_BYTES
            if ground.free_bytes < needed:
                remarks.append(f"{size / GIB:g} GiB: skipped, the disk has less than {needed / GIB:.0f} GiB free.")
                continue
            ground.say(f"growth, {size / GIB:g} GiB")
            Pipeline(store).send(fill.each((size - fill.bytes) // fill.ring.batch_bytes))
            store.checkpoint()
            costs = alternate(
                {"long": cost_in(store, stream), "new": lambda appends: _cost_in_new_log(ground, measured, appends)},
                ground.scale.growth_appends,
                ground.scale.rounds,
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


def _cost_in_new_log(ground: Ground, ring: Ring, appends: int) -> float:
    with ground.folder() as folder, new_store(folder, "relaxed") as store:
        stream = new_stream(store, _MEASURED, PARTITIONS, ring)
        cost = cost_in(store, stream)(appends)
        check_streams(store, stream)
        return cost
