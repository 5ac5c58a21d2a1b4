"""What one append costs when there are many partitions."""

from contextlib import ExitStack

from bench.audit import check_streams
from bench.batches import KB_1, ring_of_copies
from bench.figures import Bar, Figure, Section
from bench.ground import Ground
from bench.growth.append_cost import DISTINCT, cost_in
from bench.growth.flatness import FLAT, curve, slope_figure
from bench.measure import alternate
from bench.stores import new_store, new_stream
from bench.stream import Stream
from tailrace.store.embedded import EmbeddedStore

_TOPIC = 1


def run(ground: Ground) -> Section:
    scale = ground.scale
    ring = ring_of_copies(KB_1, DISTINCT)
    cases: dict[str, tuple[EmbeddedStore, Stream]] = {}
    with ExitStack() as stack:
        for count in scale.partition_counts:
            store = stack.enter_context(new_store(stack.enter_context(ground.folder()), "relaxed"))
            cases[f"{count:,}"] = store, new_stream(store, _TOPIC, count, ring)
        ground.say("growth, partitions")
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
