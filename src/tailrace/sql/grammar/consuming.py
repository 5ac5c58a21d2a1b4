"""CONSUME and ACK.

CONSUME FROM topic [GROUP 'g'] [PARTITION p] [FROM LATEST | EARLIEST | OFFSET n | TIMESTAMP 't'] [LIMIT n] [WAIT '5s']
    [SKIP CORRUPT]
ACK topic GROUP 'g' [PARTITION p] UPTO OFFSET n
COMMIT topic GROUP 'g' [PARTITION p] UPTO OFFSET n
"""

import re
from datetime import UTC, datetime

from tailrace.model.fetch import AtOffset, AtTime, StartAt, StartEdge
from tailrace.sql.statements import Ack, Consume, Statement
from tailrace.sql.words import Words

_DURATION = re.compile(r"\s*(\d{1,9})\s*(ms|s|m)\s*", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000}
_TOPIC = "the name of a topic"


def consume(words: Words, text: str) -> Statement:
    words.expect("CONSUME FROM")
    topic = words.name(_TOPIC)
    group: str | None = None
    partition: int | None = None
    start: StartAt | None = None
    limit = 100
    wait_ms = 0
    skips_corrupt = False
    left = ["GROUP", "PARTITION", "FROM", "LIMIT", "WAIT", "SKIP CORRUPT"]
    while not words.is_at_end:
        clause = words.one_of(*left, "the end of the statement")
        left.remove(clause)
        if clause == "GROUP":
            group = words.string("the name of the group")
        elif clause == "PARTITION":
            partition = words.integer("the number of the partition")
        elif clause == "FROM":
            start = _start(words)
        elif clause == "LIMIT":
            limit = words.integer("the number of records")
        elif clause == "WAIT":
            wait_ms = _duration(words)
        else:
            skips_corrupt = True
    return Consume(
        text=text,
        topic=topic,
        group=group,
        partition=partition,
        start=start,
        limit=limit,
        wait_ms=wait_ms,
        skips_corrupt=skips_corrupt,
    )


def ack(words: Words, text: str) -> Statement:
    words.one_of("ACK", "COMMIT")
    topic = words.name(_TOPIC)
    words.expect("GROUP")
    group = words.string("the name of the group")
    partition = words.integer("the number of the partition") if words.take("PARTITION") else 0
    words.expect("UPTO OFFSET")
    upto_offset = words.integer("the last offset that is done")
    words.expect_end()
    return Ack(text=text, topic=topic, group=group, partition=partition, upto_offset=upto_offset)


def _start(words: Words) -> StartAt:
    kind = words.one_of("LATEST", "EARLIEST", "OFFSET", "TIMESTAMP")
    if kind == "OFFSET":
        return AtOffset(words.integer("the offset"))
    if kind == "TIMESTAMP":
        return AtTime(_timestamp_ms(words))
    return StartEdge(kind.lower())


def _timestamp_ms(words: Words) -> int:
    value = words.value("a time such as '2026-01-28T12:00:00Z', or milliseconds since 1970", int)
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    else:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            words.refuse(f"{value!r} is not a time; write it like '2026-01-28T12:00:00Z', or as milliseconds since 1970")
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _duration(words: Words) -> int:
    value = words.value("a duration such as '5s', or milliseconds", int)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _DURATION.fullmatch(str(value))
    if found is None:
        words.refuse(f"{value!r} is not a duration; write it like '500ms', '5s' or '1m'")
    return int(found[1]) * _UNITS_MS[found[2].lower()]
