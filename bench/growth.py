"""What one append costs when there are many partitions, and when the log is long."""

import time
from contextlib import ExitStack

from bench.audit import check_streams
from bench.batches import KB_1, KB_16, Ring, ring_of_bytes, ring_of_copies
from bench.figures import Bar, Figure, Section
from bench.ground import Ground, settle_disk
from bench.measure import Side, alternate
from bench.pipeline import Pipeline
from bench.scale import GIB
from bench.stores import new_store, new_stream
from bench.stream import Stream
from tailrace.store.embedded import EmbeddedStore

PARTITIONS = 8
SPARE_BYTES = 4 * GIB

_DISTINCT = 65_536
_FILL, _MEASURED = 1, 2
_FLAT = Bar("at most", 1.25)


def run(ground: Ground) -> Section:
    by_partitions = _by_partitions(ground)
    by_log_size, remarks = _by_log_size(ground)
    return Section(
        title="Growth",
        text=f"Time for one append of a {KB_1.name} batch: {ground.scale.growth_appends:,} of them (`relaxed`, one thread),"
        " with the checkpoint that saves their index, divided by their number. The peer is Tailrace itself in the same"
        f" round, with the fewest partitions or with a new log. The log is filled with {KB_16.name} batches.",
        figures=[*by_partitions, *by_log_size],
        remarks=remarks,
    )


def _by_partitions(ground: Ground) -> list[Figure]:
    ring = ring_of_copies(KB_1, _DISTINCT)
    cases: dict[str, tuple[EmbeddedStore, Stream]] = {}
    with ExitStack() as stack:
        for count in ground.scale.partition_counts:
            store = stack.enter_context(new_store(stack.enter_context(ground.folder()), "relaxed"))
            cases[f"{count:,}"] = store, new_stream(store, _MEASURED, count, ring)
        ground.say("growth, partitions")
        sides = {name: _cost_in(store, stream) for name, (store, stream) in cases.items()}
        costs = alternate(sides, ground.scale.growth_appends, ground.scale.rounds)
        for store, stream in cases.values():
            check_streams(store, stream)
    fewest, *more = cases
    return [
        Figure(
            name=f"{count} partitions", ours=costs[count], unit="µs", peer=f"{fewest} partition", peers=costs[fewest], bar=_FLAT
        )
        for count in more
    ]


def _by_log_size(ground: Ground) -> tuple[list[Figure], list[str]]:
    """The figures, and a remark on each size that was skipped."""
    measured = ring_of_copies(KB_1, _DISTINCT)
    figures = []
    remarks = []
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
                {"long": _cost_in(store, stream), "new": lambda appends: _cost_in_new_log(ground, measured, appends)},
                ground.scale.growth_appends,
                ground.scale.rounds,
            )
            name = f"{size / GIB:g} GiB of log"
            figures.append(Figure(name=name, ours=costs["long"], unit="µs", peer="a new log", peers=costs["new"], bar=_FLAT))
        check_streams(store, fill, stream)
    return figures, remarks


def _cost_in_new_log(ground: Ground, ring: Ring, appends: int) -> float:
    with ground.folder() as folder, new_store(folder, "relaxed") as store:
        stream = new_stream(store, _MEASURED, PARTITIONS, ring)
        cost = _cost_in(store, stream)(appends)
        check_streams(store, stream)
        return cost


def _cost_in(store: EmbeddedStore, stream: Stream) -> Side:
    """Microseconds for one append."""

    def measure(appends: int) -> float:
        work = stream.take(appends)
        settle_disk()
        began = time.perf_counter()
        Pipeline(store).send(work)
        store.checkpoint()
        return (time.perf_counter() - began) / appends * 1e6

    return measure
