"""Spark's Python workers, as the pipeline's session has them made."""

import gc
import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.pipeline.steps import STEP_BYTES


def test_workers_do_not_look_through_what_was_loaded_before_them(spark: SparkSession) -> None:
    def count(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            yield pa.RecordBatch.from_pydict({"left_alone": [gc.get_freeze_count()], "looked_at": [len(gc.get_objects())]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(count, "left_alone BIGINT, looked_at BIGINT").collect()

    assert row.left_alone > 10 * row.looked_at


def test_workers_keep_memory_for_the_next_step(spark: SparkSession) -> None:
    def tell(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            yield pa.RecordBatch.from_pydict({"kept": [os.environ["MALLOC_TRIM_THRESHOLD_"]]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(tell, "kept STRING").collect()

    assert int(row.kept) > 8 * STEP_BYTES
