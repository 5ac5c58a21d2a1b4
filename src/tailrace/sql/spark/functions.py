"""All functions and operators of PostgreSQL's catalog that routes can use."""

from tailrace.sql.spark.arrays import ARRAYS
from tailrace.sql.spark.comparisons import COMPARISONS
from tailrace.sql.spark.json import JSON
from tailrace.sql.spark.numbers import NUMBERS
from tailrace.sql.spark.patterns import PATTERNS
from tailrace.sql.spark.templates import Template
from tailrace.sql.spark.texts import TEXTS
from tailrace.sql.spark.times import TIMES

FUNCTIONS: dict[str, Template] = {**COMPARISONS, **NUMBERS, **TEXTS, **PATTERNS, **TIMES, **ARRAYS, **JSON}
