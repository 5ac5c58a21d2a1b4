"""The options of the data source, read and checked. They have the names of Spark's Kafka source."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from tailrace.client.credentials import CredentialSource
from tailrace.model.suggestions import closest_name
from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.errors import OptionError

T = TypeVar("T")

EARLIEST = "earliest"
LATEST = "latest"
_EARLIEST_OFFSET = -2
_LATEST_OFFSET = -1

DEFAULT_SERVER = "http://127.0.0.1:8080"

_LOGIN = {
    "user": "user",
    "passwordEnv": "password_env",
    "passwordFile": "password_file",
    "tokenEnv": "token_env",
    "tokenFile": "token_file",
    "certificateFile": "certificate_file",
    "keyFile": "key_file",
}
"""Options that say where to find what to log in with. There is none for a secret itself: Spark shows options."""
_SECRETS = {"password": "passwordEnv or passwordFile", "token": "tokenEnv or tokenFile"}
_COMMON = ("server", "caFile", *_LOGIN, "patienceSeconds")
_SOURCE_OPTIONS = (
    *_COMMON,
    *("subscribe", "pattern", "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "pin"),
    *("maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "corruptBatches", "includeHeaders", "pushFilters"),
)
_SINK_OPTIONS = (*_COMMON, "topic", "compression")
_FOR_KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": "server",
    "subscribepattern": "pattern",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
}
_MIN_SIMILARITY = 0.85
"""From here on an unknown option is taken for a misspelled one. Others are allowed, because Spark has its own options."""

OffsetsOption = str | int | dict[str, dict[str, int]]
"""`earliest`, `latest`, a time in milliseconds, or offsets by topic and partition, where -2 is earliest and -1 latest."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerAddress
    topics: tuple[str, ...]
    pattern: str | None
    starting: OffsetsOption
    ending: OffsetsOption
    max_offsets_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    skips_corrupt: bool
    """Whether batches that can't be decoded are skipped."""
    include_headers: bool
    retry_seconds: float
    pin: str | None
    """The name under which the server keeps where a query started."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerAddress
    topic: str | None
    compression: str
    retry_seconds: float


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    given = _OptionReader(options, _SOURCE_OPTIONS)
    subscribed = given.text("subscribe")
    pattern = given.text("pattern")
    if (subscribed is None) == (pattern is None):
        raise OptionError("name the topics to read: either subscribe, as in 'orders.paid,orders.sent', or pattern, 'orders.>'")
    topics = tuple(name.strip() for name in (subscribed or "").split(",") if name.strip())
    if subscribed is not None and not topics:
        raise OptionError(f"subscribe is {subscribed!r}; name at least one topic")
    starting = _edge(given, "starting", LATEST if streaming else EARLIEST)
    ending = _edge(given, "ending", LATEST)
    if streaming and any(given.has(name) for name in ("endingOffsets", "endingTimestamp")):
        raise OptionError("a stream has no end: leave out endingOffsets, or read a batch with spark.read")
    if not streaming and starting == LATEST:
        raise OptionError("startingOffsets is 'latest', and a batch that starts at the end is empty")
    if ending == EARLIEST:
        raise OptionError("endingOffsets is 'earliest', and a batch that ends at the beginning is empty")
    return SourceOptions(
        server=given.address(),
        topics=topics,
        pattern=pattern,
        starting=starting,
        ending=ending,
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", least=1),
        min_partitions=given.number("minPartitions", least=1) or 1,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        skips_corrupt=_skips_corrupt(given.text("corruptBatches") or "report"),
        include_headers=given.flag("includeHeaders", False),
        retry_seconds=float(given.number("patienceSeconds", least=0) or 60),
        pin=given.text("pin"),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    given = _OptionReader(options, _SINK_OPTIONS)
    compression = given.text("compression") or "none"
    if compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise OptionError(f"compression is {compression!r}; it must be none, gzip, snappy, lz4 or zstd")
    return SinkOptions(
        server=given.address(),
        topic=given.text("topic"),
        compression=compression,
        retry_seconds=float(given.number("patienceSeconds", least=0) or 60),
    )


def _edge(given: "_OptionReader", side: str, otherwise: str) -> OffsetsOption:
    """Read `startingOffsets` or `startingTimestamp`, or the same with `ending`."""
    names = [f"{side}Offsets", f"{side}Timestamp"]
    if sum(map(given.has, names)) > 1:
        raise OptionError(f"{names[0]} and {names[1]} are both given; leave one out")
    timestamp = given.number(f"{side}Timestamp", least=0)
    if timestamp is not None:
        return timestamp
    text = given.text(f"{side}Offsets") or otherwise
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, int]])
    except msgspec.MsgspecError:
        raise OptionError(
            f"{side}Offsets is {text!r}; it must be earliest, latest or offsets by topic and partition, as in"
            ' {"orders.paid": {"0": 23, "1": -2}}, where -2 is earliest and -1 latest'
        ) from None


def _skips_corrupt(text: str) -> bool:
    if text not in ("report", "skip"):
        raise OptionError(f"corruptBatches is {text!r}; it must be report or skip")
    return text == "skip"


class _OptionReader:
    """Reads options whose names are not case-sensitive, as in Spark."""

    def __init__(self, options: Mapping[str, str], known: Sequence[str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        for name in self._options.keys() & _SECRETS.keys():
            raise OptionError(
                f"the option {name!r} would show a secret in Spark's plans and logs; name a variable or a file that has it,"
                f" with {_SECRETS[name]}"
            )
        for name in self._options.keys() - {name.lower() for name in known}:
            meant = closest_name(name, known, _MIN_SIMILARITY) or _FOR_KAFKA_OPTIONS.get(name)
            if meant is not None:
                raise OptionError(f"there is no option {name!r}; did you mean {meant!r}?")

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def address(self) -> ServerAddress:
        given = {name: self.text(option) for option, name in _LOGIN.items()}
        return ServerAddress(self.text("server") or DEFAULT_SERVER, self.text("caFile"), CredentialSource(**given))

    def flag(self, name: str, otherwise: bool) -> bool:
        value = self.text(name)
        if value is None:
            return otherwise
        if value.lower() not in ("true", "false"):
            raise OptionError(f"{name} is {value!r}; it must be true or false")
        return value.lower() == "true"

    def number(self, name: str, *, least: int) -> int | None:
        return self._read(name, int, f"a whole number of at least {least}", lambda number: number >= least)

    def _read(self, name: str, read: Callable[[str], T], what: str, fits: Callable[[T], bool]) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            found = read(value)
        except ValueError:
            found = None
        if found is None or not fits(found):
            raise OptionError(f"{name} is {value!r}; it must be {what}")
        return found


def resolve_offset(asked: int, earliest: int, latest: int) -> int:
    return {_EARLIEST_OFFSET: earliest, _LATEST_OFFSET: latest}.get(asked, asked)
