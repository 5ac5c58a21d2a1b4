"""How fast one address may open connections.

Opening and closing costs the server more than the client. An address may open as many as it may have at a stroke, as a machine
full of consumers does when it starts, and after that only so many a second.
"""

from tailrace.model.limits import Limits


class ConnectionRate:
    def __init__(self, limits: Limits) -> None:
        self._rate = limits.new_connections_per_second
        self._at_a_stroke = limits.connections_per_address
        self._most_hosts = limits.connections
        self._spent: dict[str, tuple[float, float]] = {}
        """By address: connections that count against it, and when that was so. They wear off by and by."""

    def admits(self, host: str, now: float) -> bool:
        """Count one more connection of the address, unless there are too many."""
        if host not in self._spent and len(self._spent) >= self._most_hosts:
            self.forget_rested(now)
            if len(self._spent) >= self._most_hosts:
                return False
        spent = self._left(host, now) + 1
        if spent > self._at_a_stroke:
            return False
        self._spent[host] = spent, now
        return True

    def forget_rested(self, now: float) -> None:
        """Addresses whose connections have worn off need not be remembered."""
        for host in [host for host in self._spent if not self._left(host, now)]:
            del self._spent[host]

    def _left(self, host: str, now: float) -> float:
        spent, then = self._spent.get(host, (0.0, now))
        return max(0.0, spent - (now - then) * self._rate)
