"""The owners of routes: a route runs with the rights of the user who made it.

When that user may no longer read the table or publish to the topic, the changes of the table wait from then on, for all its
routes, as they do when a change of the schema breaks a route. They are routed when the right is granted again, or when the
route is dropped. Nothing is left out, and what was changed before is still routed.
"""

import asyncio
import logging

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.routes.routes import Routes
from tailrace.broker.security.principals import current_principal
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import ForbiddenError, StoreClosedError, TailraceError
from tailrace.model.ids import TopicId
from tailrace.model.route import Route, RouteBlock
from tailrace.model.security import Principal

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.5
"""Before a review that could not be stored is tried again."""


class RouteOwners:
    """Stops routes whose owners lack a right, and lets them go on. Used on the event loop."""

    def __init__(self, committer: Committer, topics: Topics, routes: Routes) -> None:
        self._committer = committer
        self._topics = topics
        self._permissions = topics.permissions
        self._routes = routes
        self._is_due = False
        """Whether rights may have changed since the last review began."""
        self._reviewing: asyncio.Task[None] | None = None
        self._permissions.observers.append(self._rights_changed)
        routes.with_owner = self.with_owner

    async def close(self) -> None:
        if self._reviewing is not None:
            self._reviewing.cancel()
            await asyncio.gather(self._reviewing, return_exceptions=True)

    def require_add(self, topic: str, table: str) -> None:
        """Raise `ForbiddenError` unless the principal of the request may add a route from the table to the topic."""
        if self._permissions.is_on:
            self._topics.require("alter", topic)
            self._topics.require("publish", topic)
            self._permissions.require("select", "table", table)

    def with_owner(self, route: Route) -> Route:
        """Return a new route with its owner. Raises `ForbiddenError` if that may not do what the route does."""
        self.require_add(route.topic_name, route.table_name)
        principal = current_principal()
        if not self._permissions.is_on or principal.is_server:
            return route
        owned = msgspec.structs.replace(route, owner=principal.name)
        if not self._may_run(owned):
            raise ForbiddenError(
                f"the route would run with the rights that were granted to {principal.name!r}, whatever its address and the"
                f" roles of its token, and these are too few: have SELECT ON TABLE {route.table_name} and PUBLISH ON TOPIC"
                f" {route.topic_name} granted to that name"
            )
        return owned

    async def review(self) -> None:
        """Stop the routes whose owners lack a right now, and let those go on whose owners have it again."""
        for changes in {route.changes for route in self._routes} | self._routes.blocked_tables:
            await self._review_table(changes)

    def _rights_changed(self) -> None:
        self._is_due = True
        if self._reviewing is None:
            self._reviewing = self._committer.loop.create_task(self._review_again())

    async def _review_again(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self.review()
            except StoreClosedError:
                # The next start reviews them.
                break
            except TailraceError as error:
                _log.warning("can't stop or continue routes whose owners' rights have changed; it is tried again: %s", error)
                self._is_due = True
                await asyncio.sleep(_PAUSE_SECONDS)
        self._reviewing = None

    async def _review_table(self, changes: TopicId) -> None:
        block: RouteBlock | None = None

        def decide() -> Changes | None:
            nonlocal block
            block = there = self._routes.latest_block(changes)
            routes = [route for route in self._routes if route.changes == changes]
            lacking = tuple(route.id for route in routes if not self._may_run(route))
            if lacking == (() if there is None else there.unauthorized):
                return None
            block = msgspec.structs.replace(there or self._routes.block_at_end(changes), unauthorized=lacking)
            if not lacking and not any(map(self._routes.is_broken, routes)):
                block = None
            stored = None if block is None else msgspec.msgpack.encode(block)
            return Changes(puts=((keys.route_block_key(changes), stored),))

        def settled(_: CommitReceipt | None) -> None:
            if block is None:
                self._routes.unblocked(changes)
            else:
                self._routes.blocked(block)

        if self._topics.by_id(changes) is not None:
            await self._committer.submit(Change(decide, settled))

    def _may_run(self, route: Route) -> bool:
        """Return whether the owner of a route may do what the route does."""
        owner = Principal(route.owner)
        return not route.owner or (
            self._permissions.allows(owner, "select", "table", route.table_name)
            and self._permissions.allows(owner, "publish", "topic", route.topic_name)
        )
