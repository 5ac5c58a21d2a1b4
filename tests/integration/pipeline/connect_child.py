"""Reads and writes topics through Spark Connect. In a process of its own, because one process can't have both kinds of session.

Arguments: the address of the server and a folder. Topics `from` and `to` are there; prints how many rows it has read.
"""

import os
import sys


def main() -> None:
    server, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("tailrace").option("server", server).option("topic", "from").mode("append").save()
    source = spark.readStream.format("tailrace").option("server", server).option("subscribe", "from")
    copied = source.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("tailrace")
    query = copied.option("server", server).option("topic", "to").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    read = spark.read.format("tailrace").option("server", server).option("subscribe", "to").load()
    print(f"{type(spark).__module__} has read {read.count()} rows")
    spark.stop()


if __name__ == "__main__":
    main()
