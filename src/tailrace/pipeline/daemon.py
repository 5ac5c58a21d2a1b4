"""The process that Spark forks its Python workers from, with everything loaded that our tasks use.

Else each worker would load it for itself: seconds of work for every worker at the start, and again for one that died. Named by
`spark.python.daemon.module`.
"""

import gc
from importlib import import_module

from pyspark import daemon

from tailrace.pipeline.kernels import load_kernels

_OF_TASKS = ("pyspark.worker", "tailrace.pipeline.change_reading", "tailrace.pipeline.routed_rows")

if __name__ == "__main__":
    load_kernels()
    for module in _OF_TASKS:
        import_module(module)
    # A worker has Python's collector go through everything behind each task. What was loaded here stays anyway: to look at it
    # took 2 µs of CPU a change in large batches, and most of what a small one takes.
    gc.collect()
    gc.freeze()
    daemon.manager()
