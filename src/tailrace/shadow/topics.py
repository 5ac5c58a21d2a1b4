"""The topics of a shadow in both clusters: those of the target are made like those of the origin.

A topic is made with the same number of partitions and with those configs that decide which records it keeps, as they are in
force at the origin. Partitions that are added there are added to the target. A topic that exists in the target stays as it is.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.shadow.admin import ClusterAdmin, ConfigValue
from tailrace.shadow.cluster import KafkaCluster, TopicPlace
from tailrace.shadow.failures import INVALID_CONFIG, TOPIC_ALREADY_EXISTS, KafkaRefusalError, ShadowError

_IN_FORCE = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
)
"""Taken over as they are in force: the defaults of the two clusters differ."""
_OWN = ("compression.type", "min.cleanable.dirty.ratio", "min.insync.replicas", "segment.bytes", "segment.ms")
"""Taken over if the topic has a value of its own."""
_TIMESTAMPS = "message.timestamp.type"
_NEVER = str((1 << 63) - 1)
_FIXED = {
    # Records keep their times, whatever they are.
    _TIMESTAMPS: "CreateTime",
    "message.timestamp.before.max.ms": _NEVER,
    "message.timestamp.after.max.ms": _NEVER,
}
_TAILRACE = "tailrace."
_ASKED = (*_IN_FORCE, *_OWN, _TIMESTAMPS, "tailrace.dedup")
_DEFAULT_MOST_BYTES = 1_048_588
_READY_SECONDS = 30.0
_LOOK_SECONDS = 0.1


class CopiedTopic(NamedTuple):
    """A topic in both clusters."""

    origin: TopicPlace
    target: TopicPlace
    most_bytes: int
    """Bytes of the largest batch that the target takes."""
    is_compacted: bool
    """Whether records may vanish from between others on either side."""

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def partitions(self) -> int:
        return min(self.origin.partitions, self.target.partitions)


class TopicCopies:
    """Makes topics of the target like those of the origin."""

    def __init__(self, origin: KafkaCluster, target: KafkaCluster) -> None:
        self._origin = ClusterAdmin(origin)
        self._target = ClusterAdmin(target)
        self.notes: dict[str, list[str]] = {}
        """What deserves attention of a topic."""
        self.failures: dict[str, ShadowError] = {}
        """Why a topic is not copied."""

    async def prepare(self, names: Iterable[str], origins: Mapping[str, TopicPlace]) -> dict[str, CopiedTopic]:
        """Return the topics of these names, which exist in the target then. Those that can't be made are in `failures`."""
        wanted = [name for name in names if name in origins]
        if not wanted:
            return {}
        targets = await self._target.cluster.refresh(wanted)
        configs = await self._origin.configs(wanted, _ASKED)
        for name in list(wanted):
            self.notes.pop(name, None)
            self.failures.pop(name, None)
            try:
                await self._make(origins[name], targets.get(name), configs.get(name, {}))
            except KafkaRefusalError as error:
                self.failures[name] = error
                wanted.remove(name)
        return await self._describe(await self._await_ready(wanted, origins), origins, configs)

    async def find(self, names: Iterable[str], origins: Mapping[str, TopicPlace]) -> dict[str, CopiedTopic]:
        """Return those topics of these names that are in both clusters."""
        wanted = [name for name in names if name in origins]
        targets = await self._target.cluster.refresh(wanted) if wanted else {}
        return await self._describe(targets, origins, await self._origin.configs(list(targets), _ASKED))

    async def _describe(
        self,
        targets: Mapping[str, TopicPlace],
        origins: Mapping[str, TopicPlace],
        configs: Mapping[str, Mapping[str, ConfigValue]],
    ) -> dict[str, CopiedTopic]:
        here = await self._target.configs(list(targets), ("max.message.bytes", "cleanup.policy", _TIMESTAMPS))
        return {
            name: self._copied(origins[name], target, configs.get(name, {}), here.get(name, {}))
            for name, target in targets.items()
        }

    def _copied(
        self,
        origin: TopicPlace,
        target: TopicPlace,
        there: Mapping[str, ConfigValue],
        here: Mapping[str, ConfigValue],
    ) -> CopiedTopic:
        if _value(there, _TIMESTAMPS) == "LogAppendTime":
            self._note(origin.name, "it stores append times, and its copy keeps those: new records there have the sender's")
        if _value(here, _TIMESTAMPS) == "LogAppendTime":
            self._note(
                origin.name,
                "its copy has message.timestamp.type = LogAppendTime, so records get new times; set it to CreateTime",
            )
        if _value(there, "tailrace.dedup", "none") != "none":
            self._note(
                origin.name, "tailrace.dedup has no counterpart in Kafka: records are copied once, but others may be doubled"
            )
        most = _value(here, "max.message.bytes")
        return CopiedTopic(
            origin,
            target,
            int(most) if most.isdecimal() else _DEFAULT_MOST_BYTES,
            any("compact" in _value(configs, "cleanup.policy") for configs in (there, here)),
        )

    async def _make(self, origin: TopicPlace, target: TopicPlace | None, configs: Mapping[str, ConfigValue]) -> None:
        if target is None:
            await self._create(origin.name, origin.partitions, configs)
        elif target.partitions < origin.partitions:
            await self._target.create_partitions(origin.name, origin.partitions)
        elif target.partitions > origin.partitions:
            self._note(
                origin.name, f"it has {target.partitions} partitions in the target and {origin.partitions} at the origin"
            )

    async def _create(self, name: str, partitions: int, configs: Mapping[str, ConfigValue]) -> None:
        wanted = {key: configs[key].value for key in _IN_FORCE if key in configs}
        wanted |= {key: configs[key].value for key in _OWN if key in configs and configs[key].is_own}
        wanted |= _FIXED
        refusal = await self._target.create_topic(name, partitions, wanted)
        if refusal is not None and refusal.code == INVALID_CONFIG:
            refusal = await self._target.create_topic(name, partitions, await self._taken(name, partitions, wanted))
        if refusal is not None and refusal.code != TOPIC_ALREADY_EXISTS:
            raise refusal

    async def _taken(self, name: str, partitions: int, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the configs that the target takes."""
        taken = {}
        for key, value in wanted.items():
            refusal = await self._target.create_topic(name, partitions, {key: value}, validate_only=True)
            if refusal is None:
                taken[key] = value
            elif refusal.code != INVALID_CONFIG:
                raise refusal
            elif key not in _FIXED:
                self._note(name, f"the target does not take {key} = {value}")
        return taken

    async def _await_ready(self, names: list[str], origins: Mapping[str, TopicPlace]) -> dict[str, TopicPlace]:
        """Return the topics of the target when all their partitions have leaders."""
        deadline = asyncio.get_running_loop().time() + _READY_SECONDS
        while True:
            found = await self._target.cluster.refresh(names)
            missing = [
                name
                for name in names
                if name not in found or found[name].partitions < origins[name].partitions or min(found[name].leaders) < 0
            ]
            if not missing:
                return found
            if asyncio.get_running_loop().time() > deadline:
                raise ShadowError(
                    f"topic {missing[0]!r} has no leader for each partition in {self._target.cluster.what} after"
                    f" {_READY_SECONDS:g} s",
                    "It is tried again by itself. See the log of its brokers",
                )
            await asyncio.sleep(_LOOK_SECONDS)

    def _note(self, topic: str, note: str) -> None:
        self.notes.setdefault(topic, []).append(f"topic {topic}: {note}")


def _value(configs: Mapping[str, ConfigValue], name: str, default: str = "") -> str:
    return configs[name].value if name in configs else default
