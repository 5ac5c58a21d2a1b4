"""Spark looks for modules of this name and registers their `DefaultSource`: so `format("tailrace")` works by itself."""

from tailrace.pipeline.datasource import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
