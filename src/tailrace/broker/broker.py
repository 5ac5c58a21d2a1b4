"""The broker: all services over one store, from the start to the close. It has no sockets, and the clock is injected.

It runs on one event loop, and its services are called there unless they say otherwise. Surfaces see the services and the values
of `model`.
"""

import asyncio
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID, uuid4

from tailrace.broker import keys
from tailrace.broker.assembly import Services
from tailrace.broker.commits import Change, Committer
from tailrace.broker.security.settings import DEFAULT_SECURITY_SETTINGS, SecuritySettings
from tailrace.broker.settings import DEFAULT_BROKER_SETTINGS, BrokerSettings
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.store.contract import Store

_DECOY_KEY_BYTES = 32


class Broker(Services):
    """Starts and closes the services. Whoever opened the store closes it, after the broker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limits: Limits = DEFAULT_LIMITS,
        settings: BrokerSettings = DEFAULT_BROKER_SETTINGS,
        security: SecuritySettings = DEFAULT_SECURITY_SETTINGS,
    ) -> None:
        super().__init__(store, clock, limits, settings, security)
        self.cluster_id = ""
        """Identifies this log to Kafka's clients; set by `start`."""

    async def start(self) -> None:
        """Load the state from the store and start the background jobs."""
        self.committer.start()
        self.grants.load()
        self.users.load()
        self.quotas.load()
        self.topics.load()
        self.payload_references.load()
        self.tables.load()
        self.views.load()
        self.sources.load()
        self.source_snapshots.load()
        self.shadows.load()
        self.routes.load()
        self.snapshots.load()
        self.offsets.load()
        self.groups.start()
        self.consumer_groups.start(self.groups)
        self.queues.start()
        self.producers.load()
        self.transaction_services.load()
        self.pipelines.load()
        await self.topics.remove_patterns(self.offsets.is_used)
        await self.unchecked.load(self.committer)
        await self.tables.drop_unfinished()
        await self.sources.drop_unfinished()
        await drop_old_times(self.store, self.committer)
        self.cluster_id = await load_cluster_id(self.store, self.committer, uuid4)
        if self.permissions.is_on:
            self.authenticator.decoy_key = await load_once(
                self.store, self.committer, keys.DECOY_KEY, lambda: secrets.token_bytes(_DECOY_KEY_BYTES)
            )
        await self.route_owners.review()
        self.cut_overs.start()
        self.snowflakes.start_after(int.from_bytes(self.store.get(keys.MESSAGE_ID_MARK) or b""))
        await self.audit.start()
        self.jobs.start()

    async def close(self) -> None:
        """Reject new requests, wake those who wait, and return when everything in flight is answered."""
        await self.jobs.close()
        await self.cut_overs.close()
        await self.route_owners.close()
        await asyncio.to_thread(self.compaction.close)
        self.fetcher.close()
        self.subscriptions.close()
        self.intake.close()
        self.watched_patterns.close()
        self.groups.close()
        self.consumer_groups.close()
        await self.queues.close()
        await self.pipelines.close()
        await self.oidc.close()
        await self.audit.close()
        await self.appender.close()
        await self.committer.close()
        self.threads.close()
        self.record_checks.close()
        self.payloads.close()


async def drop_old_times(store: Store, committer: Committer) -> None:
    """Delete the state keys of a survey of timestamps that earlier versions made."""

    def decide() -> Changes | None:
        return Changes(drop_prefixes=(keys.OLD_TIMES,)) if store.range(keys.OLD_TIMES, limit=1) else None

    await committer.submit(Change(decide, lambda _: None))


async def load_cluster_id(store: Store, committer: Committer, new_uuid: Callable[[], UUID]) -> str:
    """Return the cluster id of the log. The first broker on a log generates and stores it."""
    return (await load_once(store, committer, keys.IDENTITY, lambda: urlsafe_b64encode(new_uuid().bytes).rstrip(b"="))).decode()


async def load_once(store: Store, committer: Committer, key: bytes, new: Callable[[], bytes]) -> bytes:
    """Return a value that is made once for a log, and stored."""

    def decide() -> Changes | None:
        return None if store.latest(key) is not None else Changes(puts=((key, new()),))

    return await committer.submit(Change(decide, lambda _: store.get(key) or b""))
