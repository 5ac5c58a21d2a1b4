"""The ordered map of state that commits change together with the log."""

from collections.abc import Callable

from tailrace.model.commit import Changes
from tailrace.model.ids import PartitionId, TopicId
from tailrace.store.contract import Store
from tests.support.batches import append, values_of
from tests.support.observed import scan_all

A0 = PartitionId(TopicId(1), 0)


def test_a_key_has_the_value_put_last(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(b"key", b"one")]))
    store.commit(Changes(puts=[(b"key", b"two"), (b"other", b""), (b"key", b"three")]))
    store = revisit()
    assert (store.get(b"key"), store.latest(b"key")) == (b"three", b"three")
    assert store.get(b"other") == b""
    assert (store.get(b"missing"), store.latest(b"missing")) == (None, None)


def test_a_key_put_as_none_is_deleted(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]))
    store.commit(Changes(puts=[(b"a", None), (b"never", None), (b"b", None), (b"b", b"again"), (b"d", b"4"), (b"d", None)]))
    store = revisit()
    assert list(store.range(b"")) == [(b"b", b"again"), (b"c", b"3")]
    assert store.latest(b"a") is None


def test_state_and_records_of_a_commit_come_together(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A0.topic_id, 1)]))
    for number in range(30):
        store.commit(Changes(appends=[append(A0, b"%d" % number)], puts=[(b"last", b"%d" % number)]))
    store = revisit()
    assert values_of([batch.batch for batch in scan_all(store)])[-1] == store.get(b"last") == b"29"


def test_range_gives_the_keys_of_a_prefix_in_order(store: Store, revisit: Callable[[], Store]) -> None:
    keys = [b"b/2", b"a", b"b/10", b"b", b"b/", b"c/1", b"b0", b"b/\xff\xff", b"b/\x00"]
    store.commit(Changes(puts=[(key, b"=" + key) for key in keys]))
    store = revisit()
    assert [key for key, _ in store.range(b"b/")] == [b"b/", b"b/\x00", b"b/10", b"b/2", b"b/\xff\xff"]
    assert list(store.range(b"c")) == [(b"c/1", b"=c/1")]
    assert [key for key, _ in store.range(b"")] == sorted(keys)
    assert list(store.range(b"d")) == []


def test_range_begins_at_a_start_after_the_prefix(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(b"p/%02d" % number, b"") for number in range(10)] + [(b"q", b"")]))
    store = revisit()
    assert [key for key, _ in store.range(b"p/", b"07")] == [b"p/07", b"p/08", b"p/09"]
    assert [key for key, _ in store.range(b"p/", b"06\x00")] == [b"p/07", b"p/08", b"p/09"]
    assert list(store.range(b"p/", b"99")) == []


def test_range_stops_at_its_limit(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(b"p/%02d" % number, b"") for number in range(10)]))
    store = revisit()
    assert [key for key, _ in store.range(b"p/", b"03", 2)] == [b"p/03", b"p/04"]
    assert [key for key, _ in store.range(b"p/", limit=1)] == [b"p/00"]
    assert list(store.range(b"p/", limit=0)) == []
    assert len(store.range(b"p/", limit=100)) == 10


def test_a_range_can_be_read_page_by_page(store: Store, revisit: Callable[[], Store]) -> None:
    keys = sorted({b"p/" + bytes([255 - number % 256, number % 7]) for number in range(600)})
    store.commit(Changes(puts=[(key, key) for key in keys]))
    store = revisit()
    found: list[bytes] = []
    start = b""
    while page := store.range(b"p/", start, 37):
        found += [key for key, _ in page]
        start = page[-1][0].removeprefix(b"p/") + b"\x00"
    assert found == keys


def test_a_dropped_prefix_takes_its_keys_and_no_others(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(key, b"x") for key in (b"a/1", b"a/2", b"a", b"ab", b"a/\xff\xff\xff", b"b/1")]))
    store.commit(Changes(drop_prefixes=[b"a/"]))
    store = revisit()
    assert [key for key, _ in store.range(b"")] == [b"a", b"ab", b"b/1"]
    assert store.latest(b"a/1") is None


def test_a_prefix_of_high_bytes_is_dropped_whole(store: Store, revisit: Callable[[], Store]) -> None:
    keys = [b"\xff", b"\xff\xff", b"\xff\xff\x01", b"\xff\xff\xff\xff\xff", b"\xfe\xff"]
    store.commit(Changes(puts=[(key, b"x") for key in keys]))
    store.commit(Changes(drop_prefixes=[b"\xff\xff"]))
    assert [key for key, _ in revisit().range(b"")] == [b"\xfe\xff", b"\xff"]


def test_puts_of_a_commit_outlive_its_dropped_prefixes(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(b"p/old", b"1"), (b"p/both", b"1")]))
    store.commit(Changes(drop_prefixes=[b"p/"], puts=[(b"p/both", b"2"), (b"p/new", b"3")]))
    store = revisit()
    assert list(store.range(b"p/")) == [(b"p/both", b"2"), (b"p/new", b"3")]
    assert store.latest(b"p/both") == b"2"


def test_keys_come_back_after_their_prefix_was_dropped(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(puts=[(b"p/key", b"1")]))
    store.commit(Changes(drop_prefixes=[b"p/"]))
    store.commit(Changes(puts=[(b"p/key", b"2")]))
    assert revisit().get(b"p/key") == b"2"


def test_state_keys_and_values_are_opaque_bytes(store: Store, revisit: Callable[[], Store]) -> None:
    entries = {b"\x00": b"\x00\xff", b"\x00\x00": b"", b"key\n": bytes(range(256)), b"large": b"v" * 300_000}
    store.commit(Changes(puts=list(entries.items())))
    assert dict(revisit().range(b"")) == entries
