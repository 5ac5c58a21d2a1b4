"""The compiled loops that tasks use, loaded ahead: the first process to do so compiles them and keeps the result on disk."""

import gc
from importlib import import_module

from pyspark import daemon

from tailrace.wire.arrow_encoding import compiled_encode
from tailrace.wire.change_kernels import load_row_images
from tailrace.wire.compiled_fields import compiled_fields
from tailrace.wire.partition_kernels import load_partitions_of


def load_kernels() -> None:
    """Takes about a second, and some more the first time. Tasks then find them compiled."""
    compiled_fields()
    load_row_images()
    import_module("tailrace.pipeline.cell_columns")
    import_module("tailrace.pipeline.layers")
    compiled_encode()
    load_partitions_of()


_OF_TASKS = ("pyspark.worker", "tailrace.pipeline.table_changes", "tailrace.pipeline.routed_steps")

if __name__ == "__main__":
    load_kernels()
    for module in _OF_TASKS:
        import_module(module)
    # A worker has Python's collector go through everything behind each task. What was loaded here stays anyway: to look at it
    # took 2 µs of CPU a change in large batches, and most of what a small one takes.
    gc.collect()
    gc.freeze()
    daemon.manager()
