"""Where to begin reading, as it is written on a command line: `earliest`, `latest`, an offset, a time, or how long ago."""

import re
import time
from datetime import UTC, datetime

from tailrace.cli.failures import UsageError

_AGO = re.compile(r"(\d{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MOST_DIGITS = 18

Start = str | int | dict[str, int]
"""As the HTTP API takes it."""


def parse_start(text: str) -> Start:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS:
        return int(word)
    if ago := _AGO.fullmatch(word):
        return {"timestamp_ms": max(0, round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000))}
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is no place to begin; it must be earliest, latest, an offset, a time such as 2026-01-28T12:00:00Z, or"
            " how long ago: 90s, 10m, 2h, 3d"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return {"timestamp_ms": max(0, round(moment.timestamp() * 1000))}
