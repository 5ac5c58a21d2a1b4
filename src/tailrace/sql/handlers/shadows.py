"""CREATE, ALTER and DROP SHADOW. What they define is copied by another process, which also checks the Kafka."""

import msgspec

from tailrace.broker.broker import Broker
from tailrace.model.errors import ShadowPhaseError
from tailrace.model.ids import ShadowId
from tailrace.model.shadow import Shadow
from tailrace.sql.results import Result
from tailrace.sql.statements import (
    AlterShadowStatement,
    CreateShadowStatement,
    DropShadowStatement,
    PauseShadowStatement,
    SkipLostStatement,
)


class ShadowHandler:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, asked: CreateShadowStatement) -> Result:
        shadows = self._broker.shadows
        if shadows.find(asked.name) is not None and asked.if_not_exists and not asked.is_dry_run:
            return Result(status="CREATE SHADOW, which already exists")
        draft = _draft(asked)
        shadows.check_new(draft)
        created = await shadows.create(draft)
        return Result(status=f"CREATE SHADOW {created.id}")

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
        await self._broker.shadows.alter(shadow, lambda now: msgspec.structs.replace(now, skipped=lost))
        return Result(status=f"ALTER SHADOW {shadow.id}; {len(lost)} ranges are left out")

    async def drop(self, asked: DropShadowStatement) -> Result:
        shadows = self._broker.shadows
        if asked.if_exists and shadows.find(asked.name) is None:
            return Result(status="DROP SHADOW, which does not exist")
        shadow = await shadows.drop(asked.name, force=asked.force)
        return Result(status=f"DROP SHADOW {shadow.id}")


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
