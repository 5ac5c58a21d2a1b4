"""Evaluates compiled routes in a real Spark. Runs in Spark's own environment and knows nothing of Tailrace.

Standard input is JSON: `row`, the type of a row; `events`, the JSON of change events; `routes`, each with `condition`,
`failure` and `key`. Standard output is a JSON list: without and with ANSI mode, for each route, for each event, the three
values.
"""

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

AT_ONCE = 10
PARTS = ("condition", "failure", "key")


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.wholeStage": "false",
        "user": "must not be put in for ${user}",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    raw = spark.createDataFrame(list(enumerate(asked["events"])), "number INT, event STRING").coalesce(1)
    parsed = F.from_json("event", f"old {asked['row']}, new {asked['row']}")
    changes = raw.select("number", parsed.alias("change")).select("number", "change.old", "change.new").cache()
    routes = asked["routes"]
    answers = []
    for ansi in ("false", "true"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        in_parts = (routes[start : start + AT_ONCE] for start in range(0, len(routes), AT_ONCE))
        answers.append([answer for part in in_parts for answer in evaluated(changes, part)])
    json.dump(answers, sys.stdout)
    spark.stop()


def evaluated(changes: DataFrame, routes: list[dict[str, str]]) -> list[list[list[object]]]:
    columns = [
        F.expr(route[part] or "CAST(NULL AS STRING)").alias(f"{part}{number}")
        for number, route in enumerate(routes)
        for part in PARTS
    ]
    rows = changes.orderBy("number").select(*columns).collect()
    return [[[row[f"{part}{number}"] for part in PARTS] for row in rows] for number in range(len(routes))]


if __name__ == "__main__":
    main()
