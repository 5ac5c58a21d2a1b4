"""Topic configs of Kafka that say how its brokers work, and not what a topic promises.

They are checked as Kafka checks them and then have no effect: what the server does is the same for all topics, is what clients
are shown, and can't be changed. A value that asks for a stronger promise than the server makes is rejected
([decision 0059](../../../docs/decisions/0059-accepted-configs-show-what-is-in-force.md)).
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from tailrace.model.commit import Durability
from tailrace.model.errors import ConfigurationError
from tailrace.model.limits import MIB, Limits

_INT_BITS = 31
_LONG_BITS = 63
_NEVER = str((1 << _LONG_BITS) - 1)
_SEGMENT_BYTES = str(128 * MIB)
"""The size of a segment, which holds records of all topics."""
_RELAXED_SYNC_MS = "100"
"""How long written bytes may wait for their sync with `relaxed` durability."""
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_REPLICAS = re.compile(r"(\*|([0-9]+:[0-9]+)?(,([0-9]+:[0-9]+)?)*)", re.ASCII)
_FORMAT_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}(-IV[0-9]+)?", re.ASCII)


class ConfigType(IntEnum):
    """The type of a config as Kafka's tools know it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class InForce(NamedTuple):
    """What decides how the server works."""

    limits: Limits
    durability: Durability


class AcceptedConfig(NamedTuple):
    name: str
    server_name: str
    """The name of Kafka's config that sets the default of all topics."""
    type: ConfigType
    parse: Callable[[str], int | bool | str]
    """Reads a value, and raises for one that Kafka rejects."""
    shown: Callable[[InForce], str]
    documentation: str
    only: str = ""
    """Why no value but the one in force is accepted."""
    or_more: bool = False
    """Whether `only` concerns smaller values, and larger ones are accepted."""

    def check(self, text: str, in_force: InForce) -> bool:
        """Return whether the value asks for something else than what is in force. Raises if it can't be accepted."""
        try:
            asked = self.parse(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.name}: {error}") from None
        shown = self.shown(in_force)
        real = self.parse(shown)
        if asked == real:
            return False
        if self.only and not (self.or_more and asked > real):  # type: ignore[operator]
            or_more = " or more" if self.or_more else ""
            raise ConfigurationError(f"{self.name} can only be {shown!r}{or_more}, not {text!r}: {self.only}")
        return True


def _integer(bits: int, least: int, most: int | None = None) -> Callable[[str], int]:
    highest = (1 << bits) - 1 if most is None else most

    def parse(text: str) -> int:
        trimmed = text.strip()
        if len(trimmed) > len(_NEVER) + 1 or not _NUMBER.fullmatch(trimmed):
            raise ConfigurationError(f"{text[:40]!r} is not a number of {bits + 1} bits")
        number = int(trimmed)
        if not least <= number <= highest:
            raise ConfigurationError(f"{number} is not from {least} to {highest}")
        return number

    return parse


def _gzip_level(text: str) -> int:
    level = _integer(_INT_BITS, -1, 9)(text)
    if level == 0:
        raise ConfigurationError("0 is not from 1 to 9, and not -1")
    return level


def _boolean(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ConfigurationError(f"{text[:40]!r} is not true or false")
    return found


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        trimmed = "".join(text.split())
        if not pattern.fullmatch(trimmed):
            raise ConfigurationError(f"{text[:40]!r} is not {what}")
        return trimmed

    return parse


def _always(value: str) -> Callable[[InForce], str]:
    return lambda _: value


_BOOLEAN, _STRING, _INT, _LONG, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)
_REPLICA_LIST = _matching(_REPLICAS, "'*' or a list of partition:broker")
_NOT_REPLICATED = "There is one broker, so nothing is replicated."
_NOT_TIERED = "There is no remote storage."

_ACCEPTED = (
    AcceptedConfig(
        "segment.bytes",
        "log.segment.bytes",
        _INT,
        _integer(_INT_BITS, MIB),
        _always(_SEGMENT_BYTES),
        "All topics share one log with segments of this size; retention does not depend on it.",
    ),
    AcceptedConfig(
        "segment.ms", "log.roll.ms", _LONG, _integer(_LONG_BITS, 1), _always(_NEVER), "Segments are not rolled by time."
    ),
    AcceptedConfig(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        _LONG,
        _integer(_LONG_BITS, 0),
        _always("0"),
        "Segments are not rolled by time.",
    ),
    AcceptedConfig(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        _INT,
        _integer(_INT_BITS, 4),
        _always(str((1 << _INT_BITS) - 1)),
        "The index is not divided by segments and has no size of its own.",
    ),
    AcceptedConfig(
        "index.interval.bytes",
        "log.index.interval.bytes",
        _INT,
        _integer(_INT_BITS, 0),
        _always("0"),
        "Every batch is in the index.",
    ),
    AcceptedConfig(
        "flush.messages",
        "log.flush.interval.messages",
        _LONG,
        _integer(_LONG_BITS, 1),
        lambda in_force: "1" if in_force.durability == "fsync" else _NEVER,
        "With fsync durability every record is synced before it is acknowledged.",
        "the server runs with relaxed durability; start it with --durability fsync to have records synced first",
        True,
    ),
    AcceptedConfig(
        "flush.ms",
        "log.flush.interval.ms",
        _LONG,
        _integer(_LONG_BITS, 0),
        lambda in_force: "0" if in_force.durability == "fsync" else _RELAXED_SYNC_MS,
        "How long a record may wait for its sync: not at all with fsync durability.",
        "the server runs with relaxed durability; start it with --durability fsync to have records synced first",
        True,
    ),
    AcceptedConfig(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        _LONG,
        _integer(_LONG_BITS, 0),
        _always("0"),
        "Files that nothing needs are deleted at once.",
    ),
    AcceptedConfig(
        "preallocate", "log.preallocate", _BOOLEAN, _boolean, _always("true"), "Disk blocks of the log are reserved ahead."
    ),
    AcceptedConfig(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        _BOOLEAN,
        _boolean,
        _always("false"),
        _NOT_REPLICATED,
    ),
    AcceptedConfig(
        "leader.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        _LIST,
        _REPLICA_LIST,
        _always(""),
        _NOT_REPLICATED,
    ),
    AcceptedConfig(
        "follower.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        _LIST,
        _REPLICA_LIST,
        _always(""),
        _NOT_REPLICATED,
    ),
    AcceptedConfig(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        _LONG,
        _integer(_LONG_BITS, 0),
        _always(_NEVER),
        "How old a record's timestamp may be: there is no bound.",
        "records of any age are stored",
    ),
    AcceptedConfig(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        _LONG,
        _integer(_LONG_BITS, 0),
        lambda in_force: str(in_force.limits.timestamp_ahead_ms),
        "How far ahead of the server's clock a record's timestamp may be: the limit timestamp_ahead_ms.",
        "it is the limit timestamp_ahead_ms, which the configuration file sets for all topics",
    ),
    AcceptedConfig(
        "message.downconversion.enable",
        "log.message.downconversion.enable",
        _BOOLEAN,
        _boolean,
        _always("false"),
        "No client that needs older formats can connect.",
    ),
    AcceptedConfig(
        "message.format.version",
        "log.message.format.version",
        _STRING,
        _matching(_FORMAT_VERSION, "a version of Kafka"),
        _always("3.0-IV1"),
        "Record batches are stored in format v2, whatever is asked for, as by Kafka since version 3.0.",
    ),
    AcceptedConfig(
        "compression.gzip.level",
        "compression.gzip.level",
        _INT,
        _gzip_level,
        _always("-1"),
        "The level of compression.type gzip is gzip's default.",
    ),
    AcceptedConfig(
        "compression.lz4.level",
        "compression.lz4.level",
        _INT,
        _integer(_INT_BITS, 1, 17),
        _always("4"),
        "The level of compression.type lz4.",
    ),
    AcceptedConfig(
        "compression.zstd.level",
        "compression.zstd.level",
        _INT,
        _integer(_INT_BITS, -131_072, 22),
        _always("3"),
        "The level of compression.type zstd.",
    ),
    AcceptedConfig(
        "remote.storage.enable",
        "remote.storage.enable",
        _BOOLEAN,
        _boolean,
        _always("false"),
        _NOT_TIERED,
        "there is no remote storage",
    ),
    AcceptedConfig("remote.log.copy.disable", "remote.log.copy.disable", _BOOLEAN, _boolean, _always("false"), _NOT_TIERED),
    AcceptedConfig(
        "remote.log.delete.on.disable", "remote.log.delete.on.disable", _BOOLEAN, _boolean, _always("false"), _NOT_TIERED
    ),
    AcceptedConfig("local.retention.ms", "log.local.retention.ms", _LONG, _integer(_LONG_BITS, -2), _always("-2"), _NOT_TIERED),
    AcceptedConfig(
        "local.retention.bytes", "log.local.retention.bytes", _LONG, _integer(_LONG_BITS, -2), _always("-2"), _NOT_TIERED
    ),
)
ACCEPTED = {config.name: config for config in _ACCEPTED}
