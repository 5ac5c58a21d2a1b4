"""The address of a listener: a host and a port, written `HOST:PORT`."""

from ipaddress import ip_address
from typing import NamedTuple

from tailrace.model.errors import ConfigurationError

_MAX_PORT = 65_535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. Names other than `localhost` are not resolved and count as reachable."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f"{text!r} is not HOST:PORT; write an IPv6 address in brackets: [::1]:8080")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise ConfigurationError(f"{text!r} is not HOST:PORT with a port of at most {_MAX_PORT}, such as 127.0.0.1:8080")
    return Address(host, int(port))
