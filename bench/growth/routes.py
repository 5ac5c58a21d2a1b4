"""What a change costs the pipeline when there are many routes."""

from bench.figures import Bar, Section
from bench.ground import Ground
from bench.growth.flatness import curve, slope_figure
from bench.http.server import serving
from bench.spark.changes import check_routed, load_changes
from bench.spark.router import Routed, measure_router

_BAR = Bar("at most", 0.5)
"""For a slope: ten times as many routes cost no more than three times as much."""


def run(ground: Ground) -> Section:
    scale = ground.scale.growth
    found: dict[int, Routed] = {}
    with serving(ground) as server:
        for count in scale.routes:
            ground.say(f"growth, routes: {scale.routed_changes:,} changes for {count}")
            table = load_changes(server, f"bench.grown_{count}", count, scale.routed_changes)
            out = ground.root / "pipeline"
            found[count] = measure_router(server, table.topics, table.changes, table.routed, scale.routed_a_batch, out)
            check_routed(server, table)
    microseconds = {count: [1e6 / each.changes_per_second] for count, each in found.items()}
    times = curve("time for a change", "routes", "µs", microseconds)
    costs = curve("pipeline's CPU for a change", "routes", "µs", {count: [each.pipeline_cpu] for count, each in found.items()})
    return Section(
        title="Growth: routes",
        text=f"{scale.routed_changes:,} changes of rows of 200 B wait when `tailrace pipeline` starts, as in the subject on"
        " routed changes, with more and more routes; one route takes every other change, many share all of them. Each point is"
        " one run, from the moment at which 40 % are done to the end. Every topic is counted, its keys are told apart and added"
        " up.",
        figures=[slope_figure(times, _BAR), slope_figure(costs)],
        curves=[times, costs],
    )
