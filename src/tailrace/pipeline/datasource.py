"""`format("tailrace")`: reads and writes topics in Spark, in batches and in streams."""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from tailrace.pipeline.options import sink_options, source_options
from tailrace.pipeline.sink import TopicStreamWriter, TopicWriter
from tailrace.pipeline.source import FilteringTopicReader, TopicReader, TopicStreamReader
from tailrace.pipeline.topic_reading import spark_schema

_PYTHON = "PYSPARK_PYTHON"


class TailraceDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tailrace"

    def schema(self) -> str:
        return spark_schema(self.options.get("includeHeaders", "false").lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, streaming=False)
        pushes = self.options.get("pushFilters", "false").lower() == "true"
        return FilteringTopicReader(options) if pushes else TopicReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicStreamReader(source_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return TopicWriter(sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return TopicStreamWriter(sink_options(self.options), schema)


def register(spark: SparkSession) -> None:
    """Register the format in a session whose Python does not find it: docs/reference/spark.md says when.

    If all of Spark runs on this machine and PYSPARK_PYTHON is not set, its workers run this Python from now on.
    """
    if not is_remote() and _PYTHON not in os.environ and str(spark.sparkContext.master).startswith("local"):
        # Otherwise it is the first python3 on the path.
        spark.sparkContext.pythonExec = sys.executable
    spark.dataSource.register(TailraceDataSource)
