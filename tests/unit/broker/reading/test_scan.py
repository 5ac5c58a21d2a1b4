"""A view of a topic does not change, and shows what readers of committed records see."""

from tailrace.broker.broker import Broker
from tailrace.broker.reading.scan import PartitionScan, ScanRange
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.wire.records import decode_batch
from tests.support.aio import on_loop
from tests.support.brokers import CountingStore, append, raw, running_broker
from tests.support.transactions import TOPIC, started

ALL = ScanRange(Offset(0), Offset(1 << 62))


def values(view: PartitionScan, wanted: ScanRange = ALL) -> list[bytes | None]:
    """Return the values of all batches that hold a wanted offset."""
    return [
        record.value for piece in view.parts(wanted) for batch in piece for record in decode_batch(batch.batch, DEFAULT_LIMITS)
    ]


async def filled(broker: Broker, *batches: tuple[bytes, ...]) -> None:
    await broker.topics.create(TOPIC, 2)
    for batch in batches:
        await append(broker, raw(TOPIC, 0, *batch))


@on_loop
async def test_what_comes_later_is_not_in_the_view() -> None:
    async with running_broker() as broker:
        await filled(broker, (b"a", b"b"))
        view = broker.scanner.view(TOPIC)
        await append(broker, raw(TOPIC, 0, b"c"), raw(TOPIC, 1, b"d"))
        assert [values(partition) for partition in view.partitions] == [[b"a", b"b"], []]
        assert [values(partition) for partition in broker.scanner.view(TOPIC).partitions] == [[b"a", b"b", b"c"], [b"d"]]


@on_loop
async def test_only_batches_with_wanted_offsets_are_read() -> None:
    store = CountingStore()
    async with running_broker(store) as broker:
        await filled(broker, (b"a", b"b"), (b"c",), (b"d", b"e"))
        (view, _) = broker.scanner.view(TOPIC).partitions
        assert values(view, ScanRange(Offset(1), Offset(3))) == [b"a", b"b", b"c"]
        assert values(view, ScanRange(Offset(2), Offset(3))) == [b"c"]
        before = store.fetches
        assert values(view, ScanRange(Offset(5), Offset(9))) == []
        assert store.fetches == before


@on_loop
async def test_a_cursor_is_found_by_halving() -> None:
    async with running_broker() as broker:
        await filled(broker)
        for number in range(20):
            await append(broker, raw(TOPIC, 1, b"other"))
            await append(broker, raw(TOPIC, 0, b"%d" % number, b"x"))
        (view, _) = broker.scanner.view(TOPIC).partitions
        cursors = [placed.cursor for piece in view.parts(ALL) for placed in piece]
        assert cursors == [3 * number + 1 for number in range(20)]
        assert [view.offset_at_cursor(cursor) for cursor in (0, 1, 2, 3, 4, 58, 59, 60, 99)] == [0, 0, 1, 2, 2, 38, 39, 40, 40]


@on_loop
async def test_open_and_aborted_transactions_are_not_shown() -> None:
    async with running_broker() as broker:
        await filled(broker, (b"plain",))
        gone = await started(broker, "gone")
        await gone.write(0, b"aborted")
        await gone.abort()
        kept = await started(broker, "kept")
        await kept.write(0, b"committed")
        await kept.commit()
        still = await started(broker, "still")
        await still.write(0, b"open")
        await append(broker, raw(TOPIC, 0, b"after"))
        (view, _) = broker.scanner.view(TOPIC).partitions
        assert values(view) == [b"plain", b"committed"]
        await still.commit()
        assert values(view) == [b"plain", b"committed"]
        assert values(broker.scanner.view(TOPIC).partitions[0]) == [b"plain", b"committed", b"open", b"after"]


@on_loop
async def test_what_retention_takes_meanwhile_is_skipped() -> None:
    async with running_broker() as broker:
        await filled(broker, (b"a",), (b"b",), (b"c",))
        (view, _) = broker.scanner.view(TOPIC).partitions
        await broker.retention.delete_before(TOPIC, 0, Offset(2))
        assert values(view) == [b"c"]
