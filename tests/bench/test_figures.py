"""Sides are measured in turn, and ratios are taken within a round."""

from bench.figures import Samples, alternate, ratios


def test_who_goes_first_changes_from_round_to_round() -> None:
    order: list[str] = []

    def side(name: str, work: int) -> float:
        order.append(f"{name}{work}")
        return float(len(order))

    found = alternate({"a": lambda work: side("a", work), "b": lambda work: side("b", work)}, work=80, rounds=2)

    assert order == ["a10", "b10", "a80", "b80", "b80", "a80"]
    assert found == {"a": Samples((3.0, 6.0)), "b": Samples((4.0, 5.0))}


def test_a_ratio_is_taken_between_neighbours() -> None:
    assert ratios(Samples((10.0, 200.0, 30.0)), Samples((20.0, 100.0, 30.0))).median == 1.0


def test_the_median_is_shown_with_the_lowest_and_the_highest() -> None:
    samples = Samples((5.0, 1.0, 3.0))
    assert (samples.median, samples.lowest, samples.highest) == (3.0, 1.0, 5.0)
