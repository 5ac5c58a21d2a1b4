"""The store with one known fault each, to show that the chaos tests would notice."""

from collections.abc import Callable, Mapping

MUTANTS: Mapping[str, Callable[[], None]] = {}
