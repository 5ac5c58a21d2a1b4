"""`make bench`: every benchmark in turn, one page at the end.

What is measured beside Apache Kafka, or on Spark, is left out, and said to be, where Java, Maven or their jars can't be had.

Exits with 1 if a record was lost or doubled. A bar that is missed stands in the page and on the screen; it is no
failure of the run.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import append, fetch, growth, laggard, machine, opening, partitions, tiny_appends
from bench.audit import AuditFailure
from bench.figures import Section
from bench.ground import Ground
from bench.http import speaking, subscribers
from bench.kafka.subjects import KAFKA_SUBJECTS
from bench.peers.kafka import KafkaPeer
from bench.peers.kafka_jars import NotObtainable, kafka_jars
from bench.peers.tailrace import TailracePeer
from bench.report import render, summary
from bench.scale import FULL, QUICK, Scale
from bench.spark import routing, topics
from bench.spark.connector_jars import connector_jars
from bench.sql import querying, writing
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.session import check_spark
from tailrace.server import collect_seldom

ROOT = Path(__file__).resolve().parents[1]
NOTES = Path(__file__).with_name("notes.md")
PAGE = ROOT / "docs" / "benchmarks.md"

SUBJECTS: Mapping[str, Callable[[Ground], Section]] = {
    "append": append.run_relaxed,
    "append-synced": append.run_synced,
    "tiny-appends": tiny_appends.run,
    "fetch": fetch.run,
    "opening": opening.run,
    "partitions": partitions.run,
    "growth": growth.run,
    "laggard": laggard.run,
    "sql-writing": writing.run,
    "sql-querying": querying.run,
    "http": speaking.run,
    "http-subscribers": subscribers.run,
}
ROUTER = "pipeline"
BESIDE_CONNECTOR = "pipeline-topics"
NAMES = (*SUBJECTS, ROUTER, *KAFKA_SUBJECTS, BESIDE_CONNECTOR)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    options.dir.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    load_before = machine.load()
    try:
        sections = measure(options.dir, scale, options.only or NAMES, lambda line: _say(began, line))
    except AuditFailure as failure:
        print(f"The run counts for nothing: {failure}", file=sys.stderr)
        return 1
    facts = {**machine.facts(options.dir), "load": f"{load_before} before and {machine.load()} after the run"}
    page = render(sections, facts, is_full=scale is FULL, notes=NOTES.read_text())
    if options.out is None:
        print(page)
    else:
        options.out.write_text(page)
    _say(began, summary(sections))
    return 0


def measure(folder: Path, scale: Scale, names: Sequence[str], say: Callable[[str], None]) -> list[Section]:
    with TemporaryDirectory(prefix="bench-", dir=folder) as root:
        ground = Ground(Path(root), scale, say)
        sections = [SUBJECTS[name](ground) for name in names if name in SUBJECTS]
        return [*sections, *_on_spark(ground, names), *_beside_kafka(ground, names, folder)]


def _on_spark(ground: Ground, names: Sequence[str]) -> list[Section]:
    if ROUTER not in names:
        return []
    try:
        check_spark()
    except PipelineError as why:
        ground.say(f"the pipeline is not measured: {why}")
        return []
    return [routing.run(ground)]


def _beside_kafka(ground: Ground, names: Sequence[str], cache: Path) -> list[Section]:
    subjects = [KAFKA_SUBJECTS[name] for name in names if name in KAFKA_SUBJECTS]
    if not subjects and BESIDE_CONNECTOR not in names:
        return []
    try:
        kafka = partial(KafkaPeer, kafka_jars(cache))
    except NotObtainable as why:
        ground.say(f"nothing is measured beside Kafka: {why}")
        return []
    sections = [subject(ground, TailracePeer, kafka) for subject in subjects]
    if BESIDE_CONNECTOR in names:
        try:
            check_spark()
            sections.append(topics.run(ground, kafka, connector_jars(cache)))
        except (NotObtainable, PipelineError) as why:
            ground.say(f"nothing is measured beside Spark's Kafka connector: {why}")
    return sections


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measure Tailrace on this machine, against plain writes and Kafka."
    )
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds: minutes become seconds")
    parser.add_argument(
        "--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}; can be repeated"
    )
    parser.add_argument("--dir", type=Path, default=ROOT / "build", help="where to write the data; it is removed afterwards")
    parser.add_argument(
        "--out",
        type=Path,
        help="where to write the page; by default docs/benchmarks.md after a whole full run, else the screen",
    )
    options = parser.parse_args(arguments)
    if options.out is None and not options.quick and not options.only:
        options.out = PAGE
    return options


def _say(began: float, line: str) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    collect_seldom()  # as the server does
    sys.exit(main())
