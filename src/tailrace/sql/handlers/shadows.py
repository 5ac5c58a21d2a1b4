"""CREATE, ALTER and DROP SHADOW. What they define is copied by another process, which also checks the Kafka."""

from collections.abc import Sequence

import msgspec

from tailrace.broker.broker import Broker
from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import ShadowPhaseError, UnsupportedSqlError
from tailrace.model.ids import ShadowId
from tailrace.model.limits import Limits
from tailrace.model.shadow import CopiedTopics, Shadow
from tailrace.model.text import counted
from tailrace.sql.handlers.connection_checks import dry_run_result, raise_failed
from tailrace.sql.results import Result
from tailrace.sql.statements import (
    AlterShadowStatement,
    CreateShadowStatement,
    DropShadowStatement,
    PauseShadowStatement,
    SkipLostStatement,
)

_NAMED = 10


class ShadowHandler:
    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._limits = limits

    async def create(self, asked: CreateShadowStatement) -> Result:
        shadows = self._broker.shadows
        if shadows.find(asked.name) is not None and asked.if_not_exists and not asked.is_dry_run:
            return Result(status="CREATE SHADOW, which already exists")
        draft = _draft(asked)
        shadows.check_new(draft)
        checks = await self._checks(asked, draft)
        if asked.is_dry_run:
            return dry_run_result(checks)
        raise_failed(checks, asked)
        created = await shadows.create(draft)
        return Result(status=f"CREATE SHADOW {created.id}")

    async def _checks(self, asked: CreateShadowStatement, draft: Shadow) -> Sequence[ConnectionCheck]:
        own = self._own_checks(draft)
        if draft.copied_by == "command" and not asked.is_dry_run:
            # The server may not reach the Kafka at all.
            return own
        kafkas = self._broker.shadows.kafkas
        if kafkas is None:
            raise UnsupportedSqlError("this server can't reach a Kafka", asked.line, asked.column)
        return [*own, *await kafkas.check(draft)]

    def _own_checks(self, draft: Shadow) -> list[ConnectionCheck]:
        """Return what the server itself can say of a shadow to a Kafka."""
        if draft.direction == "from":
            return []
        included = CopiedTopics(draft, self._limits)
        copied = [live.topic.name for live in self._broker.topics if included.includes(live.topic.name)]
        if not copied:
            what = f"no topic matches {', '.join(draft.topics)}"
            return [ConnectionCheck("topics", "warning", what, "Topics that are created later are copied too")]
        checks = [ConnectionCheck("topics", "ok", f"{counted(len(copied), 'topic')} will be copied: {_listed(copied)}")]
        routed = sorted({route.topic_name for route in self._broker.routes if included.includes(route.topic_name)})
        if routed:
            what = f"routes lead to {_listed(routed)}"
            advice = "Cut over with --producers forward, so that what they write is copied on, or drop them before"
            checks.append(ConnectionCheck("routes", "warning", what, advice))
        return checks

    async def alter(self, asked: AlterShadowStatement) -> Result:
        shadow = self._broker.shadows.get(asked.name)

        def altered(now: Shadow) -> Shadow:
            if "topics" in asked.changes and now.phase != "copying":
                raise ShadowPhaseError(
                    f"the topics of shadow {now.name!r} can't be altered while it is {now.phase}; roll it back first",
                    asked.line,
                    asked.column,
                )
            changes = dict(asked.changes)
            if "settings" in changes:
                changes["settings"] = now.settings | changes["settings"]
            if "password_env" in changes or "password_file" in changes:
                changes = {"password_env": None, "password_file": None} | changes
            return msgspec.structs.replace(now, **changes)

        await self._broker.shadows.alter(shadow, altered)
        return Result(status=f"ALTER SHADOW {shadow.id}")

    async def pause(self, asked: PauseShadowStatement) -> Result:
        shadow = self._broker.shadows.get(asked.name)
        await self._broker.shadows.alter(shadow, lambda now: msgspec.structs.replace(now, is_paused=asked.is_paused))
        return Result(status=f"ALTER SHADOW {shadow.id}")

    async def skip_lost(self, asked: SkipLostStatement) -> Result:
        """Let the copy go on behind what was lost as far as it is known now, and no further."""
        shadow = self._broker.shadows.get(asked.name)
        report = self._broker.shadows.last_report(shadow)
        lost = () if report is None else report.lost
        await self._broker.shadows.alter(shadow, lambda now: msgspec.structs.replace(now, skipped=lost, lost_deletions=()))
        return Result(status=f"ALTER SHADOW {shadow.id}; {counted(len(lost), 'range')} left out")

    async def drop(self, asked: DropShadowStatement) -> Result:
        shadows = self._broker.shadows
        if asked.if_exists and shadows.find(asked.name) is None:
            return Result(status="DROP SHADOW, which does not exist")
        shadow = await shadows.drop(asked.name, force=asked.force)
        return Result(status=f"DROP SHADOW {shadow.id}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _draft(asked: CreateShadowStatement) -> Shadow:
    return Shadow(
        id=ShadowId(0),
        name=asked.name,
        direction=asked.direction,
        bootstrap=asked.bootstrap,
        topics=asked.topics,
        groups=asked.groups,
        settings=asked.settings,
        user=asked.user,
        password_env=asked.password_env,
        password_file=asked.password_file,
        throttle_bytes=asked.throttle_bytes,
        copied_by=asked.copied_by,
        created_ms=0,
    )
