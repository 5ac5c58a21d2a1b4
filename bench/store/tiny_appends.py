"""Tiny appends from many callers, which group commit makes cheap."""

from collections.abc import Callable

from bench.audit import check_streams, new_store, new_stream
from bench.batches import BYTES_200, Ring, Stream, ring_of_copies
from bench.figures import Bar, Figure, Samples, Section, Side, alternate
from bench.workspace import Workspace, settle_disk
from bench.writers import Elapsed, StoreCallers, call_in_turn, run_on_loop
from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.errors import TailraceError
from tailrace.model.ids import PartitionId
from tailrace.model.record import RawBatch

PARTITIONS = 8
TOPIC = "tiny"

_DISTINCT = 65_536
_BAR = Bar("at least", 100_000)


def run(workspace: Workspace) -> Section:
    scale = workspace.scale
    ring = ring_of_copies(BYTES_200, _DISTINCT)
    store_cpu: list[float] = []
    broker_cpu: list[float] = []
    workspace.say("tiny appends")
    rates = alternate(
        {"store": _side(_at_store, workspace, ring, store_cpu), "broker": _side(_through_broker, workspace, ring, broker_cpu)},
        scale.tiny_appends,
        scale.rounds,
    )
    return Section(
        title="Tiny appends, `fsync`",
        text=f"{scale.callers:,} callers on one event loop append batches of one record, {BYTES_200.name}, to {PARTITIONS}"
        " partitions; each waits for its answer, which comes after the sync, before it appends again. What they append is made"
        " before the clock runs. At the store: `Store.submit`, one commit a batch; the callers are callbacks. Through the"
        " broker: `Appender.append`, which checks every batch and lets those of one loop turn share a commit; the callers"
        " are tasks. CPU is what the whole process uses for one append, its callers included; other work on the machine lowers"
        " the rate, but hardly changes this.",
        figures=[
            Figure(name="at the store", ours=rates["store"], unit="appends/s", bar=_BAR),
            Figure(name="through the broker", ours=rates["broker"], unit="appends/s", bar=_BAR),
            Figure(name="CPU, at the store", ours=Samples(store_cpu[-scale.rounds :]), unit="µs"),
            Figure(name="CPU, through the broker", ours=Samples(broker_cpu[-scale.rounds :]), unit="µs"),
        ],
    )


def _side(append: Callable[[Workspace, Ring, int], Elapsed], workspace: Workspace, ring: Ring, cpu_costs: list[float]) -> Side:
    """Return the rate, and record the CPU time in microseconds."""

    def measure(appends: int) -> float:
        took = append(workspace, ring, appends)
        cpu_costs.append(took.cpu_seconds / appends * 1e6)
        return appends / took.seconds

    return measure


def _at_store(workspace: Workspace, ring: Ring, appends: int) -> Elapsed:
    with workspace.folder() as folder, new_store(folder, "fsync") as store:
        stream = new_stream(store, 1, PARTITIONS, ring)
        settle_disk()

        async def write() -> Elapsed:
            return await StoreCallers(store).append(stream.take(appends), workspace.scale.callers)

        took = run_on_loop(write)
        check_streams(store, stream)
        return took


def _through_broker(workspace: Workspace, ring: Ring, appends: int) -> Elapsed:
    with workspace.folder() as folder, new_store(folder, "fsync") as store:

        async def write() -> tuple[Elapsed, Stream]:
            broker = Broker(store, SystemClock())
            await broker.start()
            topic = await broker.topics.create(TOPIC, PARTITIONS)
            stream = Stream([PartitionId(topic.id, number) for number in range(PARTITIONS)], ring)
            settle_disk()

            async def append(batch: RawBatch) -> None:
                (outcome,) = await broker.appender.append([batch])
                if isinstance(outcome, TailraceError):
                    raise outcome

            took = await call_in_turn(append, stream.take_raw(TOPIC, appends), workspace.scale.callers)
            await broker.close()
            return took, stream

        took, stream = run_on_loop(write)
        check_streams(store, stream)
        return took
