"""Faults on real processes, and a checker that judges what was seen: `make chaos`."""
