"""Pauses grow twofold up to a bound, within the bounds of chance."""

import pytest

from tailrace.model.backoff import Backoff


def test_without_luck_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0, chance=lambda: 1.0)
    assert [backoff.next_pause() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_with_luck_they_are_half_as_long() -> None:
    backoff = Backoff(0.1, 1.0, chance=lambda: 0.0)
    assert [backoff.next_pause() for _ in range(6)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5])


def test_by_chance_they_lie_in_between_and_differ() -> None:
    first_pauses = [Backoff(1.0, 8.0).next_pause() for _ in range(200)]
    assert all(0.5 <= pause <= 1.0 for pause in first_pauses)
    assert len(set(first_pauses)) > 100


def test_after_a_success_it_begins_anew() -> None:
    backoff = Backoff(0.1, 1.0, chance=lambda: 1.0)
    backoff.next_pause()
    backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() == pytest.approx(0.1)


def test_a_thousand_attempts_do_not_overflow() -> None:
    backoff = Backoff(0.1, 2.0, chance=lambda: 1.0)
    assert [backoff.next_pause() for _ in range(1000)][-1] == 2.0
