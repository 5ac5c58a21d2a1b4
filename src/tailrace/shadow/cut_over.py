"""Cuts a shadow over: from then on the topics are those of the target.

The steps are checks, a fence, the rest of the copy, a comparison, and the offsets of groups; each is told as it goes. A
rehearsal does all that can be done without a fence. Whatever fails, the fence is given up, and everything is as it was. A Kafka
can't be fenced from here: a shadow that copies from one waits until nothing was written there for a while.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.api.shadows import FenceResponse, ShadowStatusResponse
from tailrace.model.errors import TailraceError
from tailrace.model.shadow import LocalProducers, ShadowReport
from tailrace.model.text import counted
from tailrace.shadow.admin import LATEST, Partition
from tailrace.shadow.groups import GroupTranslation
from tailrace.shadow.resumption import PartitionCopy
from tailrace.shadow.server_api import ShadowApi
from tailrace.shadow.shadow_clusters import ShadowClusters
from tailrace.shadow.verification import PartitionResult, Verification

_LOOK_SECONDS = 0.2
_TAIL_RECORDS = 10_000
_RENEWALS = 4
"""How often a fence is renewed in the time that the command may be silent."""
_MOST_NAMED = 3

Tell = Callable[[str, str], None]
"""Told the name of each step and what came out of it."""


class CutOverOptions(NamedTuple):
    producers: LocalProducers = "refuse"
    is_rehearsal: bool = False
    verifies_all: bool = False
    drain_seconds: float = 120.0
    """How long the rest may take to be copied, open transactions included; from Kafka how long to wait for quiet."""
    quiet_seconds: float = 10.0
    """From Kafka: how long nothing may be written before the topics are cut over."""


class CutOverError(Exception):
    """The cut-over was not done. The message says why, and what to do."""


class CutOver:
    """One cut-over, or the rehearsal of one."""

    def __init__(self, api: ShadowApi, clusters: ShadowClusters, options: CutOverOptions, tell: Tell) -> None:
        self._api = api
        self._clusters = clusters
        self._options = options
        self._tell = tell

    async def run(self, found: ShadowStatusResponse) -> None:
        """Cut over. Raises `CutOverError`, `ShadowError` or an error of the server; then nothing has changed."""
        self._check(found)
        if found.status.shadow.direction == "to":
            await self._out(found.status.report)
        else:
            await self._in()

    def _check(self, found: ShadowStatusResponse) -> None:
        shadow, status = found.status.shadow, found.status
        if shadow.phase != "copying":
            raise CutOverError(f"shadow {shadow.name!r} is {shadow.phase} already")
        if status.state != "live":
            why = status.report.error or f"its state is {status.state}"
            raise CutOverError(f"shadow {shadow.name!r} is not live: {why}. Wait until it is, or do what its advice says")
        behind = status.report.lag
        self._tell("check", f"{counted(len(status.report.partitions), 'partition')} copied live, {behind:,} offsets behind")

    async def _out(self, report: ShadowReport) -> None:
        options = self._options
        if options.is_rehearsal:
            rehearsed = await self._api.fence(options.producers, is_rehearsal=True)
            self._check_copied(rehearsed, report)
            self._tell("fence", f"would stop producers of {_topics(rehearsed)} for some seconds")
            await self._drain(rehearsed)
            await self._complete()
            return
        fence = await self._api.fence(options.producers)
        renewing = asyncio.create_task(self._renew(fence))
        is_done = False
        try:
            self._check_copied(fence, report)
            self._tell("fence", f"{_topics(fence)} take no records here")
            await self._drain(fence)
            await self._complete()
            await self._api.cut_over(options.producers, fence.fence)
            is_done = True
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            if not is_done:
                await asyncio.shield(self._give_up(fence.fence))
        after = "are refused here" if options.producers == "refuse" else "are stored here and copied on"
        self._tell("cut over", f"records for {_topics(fence)} {after}")

    async def _renew(self, fence: FenceResponse) -> None:
        """Renew the fence until this is cancelled. That it was lost shows at the end: the server does not cut over then."""
        while True:
            await asyncio.sleep(fence.silence_seconds / _RENEWALS)
            with suppress(TailraceError):
                await self._api.renew(fence.fence, self._options.producers)

    async def _give_up(self, fence: int) -> None:
        try:
            await self._api.unfence(fence, f"the cut-over by {self._api.owner} was given up. Topics take records again")
        except TailraceError as error:
            self._tell("fence", f"could not be given up ({error}); it ends by itself within a minute")
        else:
            self._tell("fence", "given up: topics take records here again")

    def _check_copied(self, fence: FenceResponse, report: ShadowReport) -> None:
        """Raise if a topic would be fenced that is not copied."""
        copied = {(each.topic, each.partition, each.topic_id) for each in report.partitions}
        for each in fence.partitions:
            if (each.topic, each.partition, each.topic_id) not in copied:
                raise CutOverError(
                    f"topic {each.topic!r} is not copied yet, though the shadow includes it. See tailrace shadow status"
                    f" {self._clusters.shadow.name}, or try again in a few seconds"
                )

    async def _drain(self, fence: FenceResponse) -> None:
        """Wait until everything is copied that was there when the fence was, and open transactions have ended."""
        now = asyncio.get_running_loop().time
        began = now()
        while True:
            is_open = bool(fence.fence and (fence.open_transactions or fence.open_writes))
            left = await self._left({(each.topic, each.partition): each.end for each in fence.partitions})
            if not left and not is_open:
                break
            if now() - began > self._options.drain_seconds:
                raise CutOverError(_not_drained(left, fence, self._options.drain_seconds))
            await asyncio.sleep(_LOOK_SECONDS)
            if fence.fence:
                # Markers of transactions that end move the ends.
                fence = await self._api.renew(fence.fence, self._options.producers)
        self._tell("drain", f"everything is copied, after {now() - began:.1f} s")

    async def _left(self, ends: Mapping[Partition, int]) -> Sequence[Partition]:
        """Return the partitions with records before these ends that are not in the target."""
        clusters = self._clusters
        copies = await clusters.copies()
        topics = await clusters.topics()
        left = []
        for (name, number), end in ends.items():
            topic, copy = topics.get(name), copies.get((name, number))
            # One without a position had nothing to copy, or nothing of it is copied.
            start = 0 if copy is None else copy.position
            if topic is None or await clusters.has_more(clusters.origin, topic.origin, number, start, end):
                left.append((name, number))
        return left

    async def _complete(self) -> dict[Partition, PartitionCopy]:
        """Compare what was copied, and set the offsets of groups."""
        clusters = self._clusters
        copies = await clusters.copies()
        await self._verify(copies)
        groups = GroupTranslation(clusters.origin, clusters.target, clusters.shadow.groups)
        if self._options.is_rehearsal:
            self._tell("groups", "offsets are in step with the copy; the cut-over sets them once more")
            return copies
        await groups.take_over(copies, is_final=True)
        self._tell("groups", f"offsets of {counted(groups.groups, 'group')} are set in the target")
        for note in groups.notes:
            self._tell("groups", note)
        return copies

    async def _verify(self, copies: dict[Partition, PartitionCopy]) -> None:
        clusters = self._clusters
        tail = None
        if not self._options.verifies_all:
            tail = {partition: copy.position - _TAIL_RECORDS for partition, copy in copies.items()}
        verification = Verification(clusters.origin.cluster, clusters.target.cluster)
        compared = 0
        async for result in verification.verify(copies, tail):
            compared += result.records
            if result.difference is not None:
                raise CutOverError(show_difference(result))
        which = "all records" if self._options.verifies_all else "the newest records of each partition"
        self._tell("verify", f"{which} are equal on both sides ({counted(compared, 'record')} compared)")

    async def _in(self) -> None:
        """Wait until nothing is written to the Kafka, and take its topics over."""
        ends = await self._await_quiet()
        copies = await self._complete()
        if self._options.is_rehearsal:
            return
        await self._api.cut_over(self._options.producers, None)
        if await self._ends() != ends:
            await self._api.roll_back(
                f"the cut-over by {self._api.owner} was given up: records were written to Kafka meanwhile"
            )
            raise CutOverError(
                "records were written to the Kafka while its topics were cut over, so that was taken back. Stop all producers"
                " first"
            )
        self._tell("cut over", f"{counted(len({name for name, _ in copies}), 'topic')} are those of Tailrace now")

    async def _await_quiet(self) -> Mapping[Partition, int]:
        now = asyncio.get_running_loop().time
        began = quiet_since = now()
        ends = await self._ends()
        while True:
            left = [*await self._left(ends), *await self._unstable(ends)]
            if now() - quiet_since >= self._options.quiet_seconds and not left:
                self._tell(
                    "drain", f"nothing was written to the Kafka for {now() - quiet_since:.0f} s, and everything is copied"
                )
                return ends
            if now() - began > self._options.drain_seconds:
                is_quiet = now() - quiet_since >= self._options.quiet_seconds
                what = f"not everything is copied: {_named(left)}" if is_quiet else "records are still written to the Kafka"
                raise CutOverError(f"{what}, after {self._options.drain_seconds:g} s. Stop all producers, or allow more time")
            await asyncio.sleep(_LOOK_SECONDS)
            newest = await self._ends()
            if newest != ends:
                ends, quiet_since = newest, now()

    async def _unstable(self, ends: Mapping[Partition, int]) -> Sequence[Partition]:
        """Return the partitions that have open transactions."""
        topics = await self._clusters.topics()
        stable = await self._clusters.origin.offsets([topic.origin for topic in topics.values()], LATEST, committed=True)
        return [partition for partition, end in ends.items() if stable.get(partition, 0) < end]

    async def _ends(self) -> Mapping[Partition, int]:
        topics = await self._clusters.topics()
        return await self._clusters.origin.offsets([topic.origin for topic in topics.values()], LATEST)


def show_difference(result: PartitionResult) -> str:
    """Say where and in what a partition differs."""
    difference = result.difference
    if difference is None:
        return f"partition {result.partition} of topic {result.topic!r} is equal on both sides"
    places = [
        f"offset {offset} of the {side}"
        for offset, side in ((difference.origin_offset, "origin"), (difference.target_offset, "target"))
        if offset is not None
    ]
    return f"partition {result.partition} of topic {result.topic!r} differs at {' and '.join(places)}: {difference.what}"


def _topics(fence: FenceResponse) -> str:
    return counted(len({each.topic for each in fence.partitions}), "topic")


def _not_drained(left: Sequence[Partition], fence: FenceResponse, seconds: float) -> str:
    reasons = []
    if left:
        reasons.append(f"{_named(left)} not completely copied")
    if fence.open_transactions:
        reasons.append(f"{counted(fence.open_transactions, 'transaction')} still open: let their producers end them")
    if fence.open_writes:
        reasons.append(f"{counted(fence.open_writes, 'large write')} of Spark still under way")
    return f"after {seconds:g} s {', and '.join(reasons)}. Cut over again, or allow more time"


def _named(partitions: Sequence[Partition]) -> str:
    named = ", ".join(f"partition {number} of {name}" for name, number in partitions[:_MOST_NAMED])
    return named if len(partitions) <= _MOST_NAMED else f"{named} and {len(partitions) - _MOST_NAMED} more"
