"""The process that Spark forks its Python workers from, named by `spark.python.daemon.module`.

It loads what our tasks use before it forks. Otherwise each worker would load it for itself, which takes seconds, and again when
one died.

A worker may run it with another Python than the one that the packages were made for, so nothing but the standard library is
imported here before that is checked.
"""

import gc
import json
import platform
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ARCHIVE_MANIFEST = "tailrace-archive.json"
"""A file beside the packages of an archive (`worker_archive.py`), with the interpreter that they are for."""
OTHER_INTERPRETER = "the tailrace archive is for"

_TASK_MODULES = (
    "pyspark.worker",
    "tailrace.pipeline.table_changes",
    "tailrace.pipeline.routed_steps",
    "tailrace.pipeline.python_conditions",
    "tailrace.pipeline.snapshot_tasks",
)
SNAPSHOT_CHUNKS = "tailrace.capture.snapshot_chunks"
"""Needs psycopg, which is optional. A task that can't import it reports that."""


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


def load_tasks() -> None:
    """Load everything that tasks use."""
    load_kernels()
    for module in _TASK_MODULES:
        import_module(module)
    with suppress(ImportError):
        import_module(SNAPSHOT_CHUNKS)


def this_interpreter() -> str:
    """Describe what compiled packages depend on: `Python 3.11 for Linux x86_64`."""
    return f"Python {sys.version_info.major}.{sys.version_info.minor} for {platform.system()} {platform.machine()}"


def _check_interpreter() -> None:
    """End with one line, which Spark reports to the driver, if the packages come from an archive for another interpreter."""
    manifest = Path(__file__).parents[2] / ARCHIVE_MANIFEST
    if manifest.exists():
        wanted = json.loads(manifest.read_text())["interpreter"]
        if wanted != this_interpreter():
            sys.exit(f"tailrace: {OTHER_INTERPRETER} {wanted}, and {sys.executable} is {this_interpreter()}")


if __name__ == "__main__":
    _check_interpreter()
    from pyspark import daemon

    load_tasks()
    # A worker runs the garbage collector after each task. Frozen objects are not visited, which saves 2 µs of CPU per change in
    # large batches and most of the time of a small batch.
    gc.collect()
    gc.freeze()
    daemon.manager()
