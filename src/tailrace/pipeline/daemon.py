"""The compiled loops that tasks use, loaded ahead: the first process to do so compiles them and keeps the result on disk."""

import gc
from importlib import import_module

from pyspark import daemon

from tailrace.wire.encoding_kernels import load_fast_partitioner
from tailrace.wire.fast_arrow_decoding import load_compiled_fields
from tailrace.wire.fast_arrow_encoding import load_encode_columns
from tailrace.wire.fast_change_rows import load_row_images


def load_kernels() -> None:
    """Takes about a second, and some more the first time. Tasks then find them compiled."""
    load_compiled_fields()
    load_row_images()
    import_module("tailrace.pipeline.cell_columns")
    import_module("tailrace.pipeline.layers")
    load_encode_columns()
    load_fast_partitioner()


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
