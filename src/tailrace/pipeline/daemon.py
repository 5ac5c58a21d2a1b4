"""The process that Spark forks its Python workers from, named by `spark.python.daemon.module`.

It loads what our tasks use before it forks. Otherwise each worker would load it for itself, which takes seconds, and again when
one died.
"""

import gc
from importlib import import_module

_TASK_MODULES = (
    "pyspark.worker",
    "tailrace.pipeline.table_changes",
    "tailrace.pipeline.routed_steps",
    "tailrace.pipeline.python_conditions",
)


def load_kernels() -> None:
    """Load the compiled loops of tasks; takes about a second. The first process on a machine compiles them and caches them."""
    from tailrace.wire.encoding_kernels import load_fast_partitioner
    from tailrace.wire.fast_arrow_decoding import load_compiled_fields
    from tailrace.wire.fast_arrow_encoding import load_encode_columns
    from tailrace.wire.fast_change_rows import load_row_images

    load_compiled_fields()
    load_row_images()
    import_module("tailrace.pipeline.cell_columns")
    import_module("tailrace.pipeline.layers")
    load_encode_columns()
    load_fast_partitioner()


if __name__ == "__main__":
    from pyspark import daemon

    load_kernels()
    for module in _TASK_MODULES:
        import_module(module)
    # A worker runs the garbage collector after each task. Frozen objects are not visited, which saves 2 µs of CPU per change in
    # large batches and most of the time of a small batch.
    gc.collect()
    gc.freeze()
    daemon.manager()
