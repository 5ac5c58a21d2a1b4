"""Run statements on the broker: one module for each family."""
