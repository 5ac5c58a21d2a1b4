"""Servers with one known fault each, which the run and the checker together must catch."""
