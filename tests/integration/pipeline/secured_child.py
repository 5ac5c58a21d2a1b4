"""A program of a user whose Spark writes to the topic `acme.orders` and reads it, with credentials of its environment.

The argument is JSON: a list of options of the format, each tried in turn. Prints what was read in the end.
"""

import json
import sys

from pyspark.sql import SparkSession

from tailrace.pipeline.session import prepare_spark


def main() -> None:
    prepare_spark()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    for options in json.loads(sys.argv[1]):
        frame = spark.createDataFrame([("from spark",)], ["value"])
        frame.write.format("tailrace").options(**options).option("topic", "acme.orders").mode("append").save()
        read = spark.read.format("tailrace").options(**options).option("subscribe", "acme.orders").load()
        found = [bytes(row.value) for row in read.select("value").collect()]
    print(found)
    spark.stop()


if __name__ == "__main__":
    main()
