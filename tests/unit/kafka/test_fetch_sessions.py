"""Fetch sessions stay within their bounds, and only their clients can use them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tailrace.kafka.fetch_sessions import FetchSessions
from tailrace.model.errors import FetchSessionEpochError, FetchSessionTopicIdError, UnknownFetchSessionError
from tailrace.model.limits import Limits
from tailrace.wire.fast_fetch import FetchedPartition
from tailrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.support.clocks import ManualClock


def sessions(clock: ManualClock | None = None, **limits: int) -> FetchSessions:
    numbers: Iterator[int] = count()
    return FetchSessions(clock or ManualClock(), Limits(**limits), lambda: next(numbers))


def request(*numbers: int, session: int = 0, epoch: int = 0, offset: int = 0, forget: tuple[int, ...] = ()) -> FetchRequest:
    partitions = tuple(FetchPartition(partition=number, fetch_offset=offset) for number in numbers)
    return FetchRequest(
        session_id=session,
        session_epoch=epoch,
        topics=(FetchTopic(topic="t", partitions=partitions),) if numbers else (),
        forgotten_topics_data=(ForgottenTopic(topic="t", partitions=forget),) if forget else (),
    )


def wanted_of(held: FetchSessions, asked: FetchRequest) -> list[int]:
    return [wanted.key[2] for wanted in held.begin(asked, by_id=False).wanted]


def test_a_session_remembers_changes_and_forgets_partitions() -> None:
    held = sessions()
    begun = held.begin(request(0, 1, 2), by_id=False)
    assert (begun.session_id, begun.is_incremental) == (1, False)
    assert wanted_of(held, request(session=1, epoch=1)) == [0, 1, 2]
    changed = held.begin(request(1, 5, session=1, epoch=2, offset=9, forget=(0,)), by_id=False)
    assert [(wanted.key[2], wanted.offset) for wanted in changed.wanted] == [(1, 9), (2, 0), (5, 9)]
    assert held.partitions == 3


def test_without_a_session_nothing_is_remembered() -> None:
    held = sessions()
    assert held.begin(request(0, 1, epoch=-1), by_id=False).session_id == 0
    assert len(held) == 0


def test_a_wrong_epoch_or_an_unknown_session_is_rejected() -> None:
    held = sessions()
    held.begin(request(0), by_id=False)
    with pytest.raises(FetchSessionEpochError):
        held.begin(request(session=1, epoch=2), by_id=False)
    with pytest.raises(UnknownFetchSessionError):
        held.begin(request(session=9, epoch=1), by_id=False)
    with pytest.raises(FetchSessionTopicIdError):
        held.begin(request(session=1, epoch=1), by_id=True)


def test_a_session_ends_when_its_owner_says_so_or_begins_another() -> None:
    held = sessions()
    held.begin(request(0, 1), by_id=False)
    held.begin(request(session=1, epoch=-1), by_id=False)
    assert (len(held), held.partitions) == (0, 0)
    first = held.begin(request(0), by_id=False).session_id
    second = held.begin(request(0, session=first), by_id=False).session_id
    assert second != first
    assert len(held) == 1


def test_at_the_bound_new_clients_get_no_session_until_one_is_idle() -> None:
    clock = ManualClock()
    held = sessions(clock, fetch_sessions=2)
    silent = held.begin(request(0), by_id=False).session_id
    busy = held.begin(request(0), by_id=False).session_id
    assert held.begin(request(0), by_id=False).session_id == 0
    clock.advance(200_000)
    held.begin(request(session=busy, epoch=1), by_id=False)
    assert held.begin(request(0), by_id=False).session_id != 0
    assert len(held) == 2
    with pytest.raises(UnknownFetchSessionError):
        held.begin(request(session=silent, epoch=1), by_id=False)


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    held = sessions(fetch_session_partitions=10)
    assert held.begin(request(*range(11)), by_id=False).session_id == 0
    number = held.begin(request(*range(8)), by_id=False).session_id
    assert held.begin(request(*range(3)), by_id=False).session_id == 0
    with pytest.raises(UnknownFetchSessionError):
        held.begin(request(*range(20), session=number, epoch=1), by_id=False)
    assert (len(held), held.partitions) == (0, 0)


def test_partitions_with_records_move_to_the_end() -> None:
    held = sessions()
    begun = held.begin(request(0, 1, 2), by_id=False)
    assert begun.session is not None
    answers = [
        FetchedPartition(0, 0, 5, 5, 0, [b"x"]),
        FetchedPartition(1, 0, 5, 5, 0, []),
        FetchedPartition(2, 0, 5, 5, 0, []),
    ]
    assert list(begun.session.update(list(zip(begun.wanted, answers, strict=True)))) == [0, 1, 2]
    assert wanted_of(held, request(session=1, epoch=1)) == [1, 2, 0]


def test_a_session_includes_partitions_with_records_errors_or_moved_offsets() -> None:
    held = sessions()
    begun = held.begin(request(0), by_id=False)
    assert begun.session is not None

    def is_news(**changed: Any) -> bool:
        answer = FetchedPartition(0, 0, 5, 5, 0, [])._replace(**changed)
        return bool(list(begun.session.update([(begun.wanted[0], answer)]))) if begun.session else False

    assert is_news()
    assert not is_news()
    assert is_news(batches=[b"x"])
    assert is_news(high_watermark=6)
    assert is_news(high_watermark=6, log_start_offset=1)
    assert is_news(error_code=3)
    assert is_news(high_watermark=6, log_start_offset=1)
