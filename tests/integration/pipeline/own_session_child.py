"""A program of a user that reads a topic in a Spark session of its own. Prints one line for each attempt.

Arguments: the address of the server, and what to do: `plain` reads, says how it failed, registers the format and reads again;
`prepared` prepares Spark before it starts it.
"""

import sys


def main() -> None:
    server, how = sys.argv[1:]
    if how == "prepared":
        from tailrace.pipeline.session import prepare_spark

        print(f"on {prepare_spark().name}")
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

    def read() -> None:
        try:
            frame = spark.read.format("tailrace").option("server", server).option("subscribe", "numbers").load()
            print(f"read {frame.count()} rows")
        except Py4JJavaError as error:
            print(f"refused: {error.java_exception.getMessage()}")

    read()
    if how == "plain":
        from tailrace.pipeline.datasource import register

        register(spark)
        read()
    spark.stop()


if __name__ == "__main__":
    main()
