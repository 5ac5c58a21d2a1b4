"""The compiled loops that tasks use, loaded ahead: the first process to do so compiles them and keeps the result on disk."""

from importlib import import_module

from tailrace.wire.arrow_encoding import compiled_encode
from tailrace.wire.change_kernels import load_row_images
from tailrace.wire.compiled_fields import compiled_fields
from tailrace.wire.partition_kernels import load_partitions_of


def load_kernels() -> None:
    """Takes about a second, and some more the first time. Tasks then find them compiled."""
    compiled_fields()
    load_row_images()
    import_module("tailrace.pipeline.cell_kernels")
    import_module("tailrace.pipeline.layers")
    compiled_encode()
    load_partitions_of()
