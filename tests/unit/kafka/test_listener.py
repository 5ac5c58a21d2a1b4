"""The rate at which one address may open connections is bounded."""

from tailrace.kafka.listener import ConnectionRate
from tailrace.model.limits import Limits


def rate(**limits: int) -> ConnectionRate:
    return ConnectionRate(Limits(**{"connections_per_address": 3, "new_connections_per_second": 10, **limits}))


def test_an_address_may_open_a_burst_of_connections_and_then_so_many_a_second() -> None:
    bound = rate()
    assert [bound.admits("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert bound.admits("b", 0.0)
    assert [bound.admits("a", 0.1) for _ in range(2)] == [True, False]
    assert [bound.admits("a", 10.0) for _ in range(4)] == [True, True, True, False]


def test_rejected_connections_do_not_count() -> None:
    bound = rate()
    for _ in range(100):
        bound.admits("a", 0.0)
    assert bound.admits("a", 0.1)


def test_no_more_addresses_are_remembered_than_there_may_be_connections() -> None:
    bound = rate(connections=2)
    assert [bound.admits(host, 0.0) for host in "abc"] == [True, True, False]
    assert bound.admits("a", 0.0)
    assert bound.admits("c", 0.1)
