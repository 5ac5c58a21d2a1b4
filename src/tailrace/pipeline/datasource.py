"""`format("tailrace")`: topics in Spark, to read and to write, in batches and in streams."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from tailrace.pipeline.columns import spark_schema
from tailrace.pipeline.options import sink_options, source_options
from tailrace.pipeline.sink import TopicStreamWriter, TopicWriter
from tailrace.pipeline.source import FilteringTopicReader, TopicReader, TopicStreamReader


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
    """Make the format known to a session. Needed only where the module `pyspark_tailrace` is not installed beside Spark."""
    spark.dataSource.register(TailraceDataSource)
