"""Spark imports modules with this prefix and registers their `DefaultSource`, so `format("tailrace")` works without setup."""

from tailrace.pipeline.datasource import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
