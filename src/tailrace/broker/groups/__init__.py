"""Consumer groups: members, rebalances, committed offsets. Rules only: no sockets, and the clock is injected."""
