"""What the Kafka listener has seen, as plain numbers for the metrics page."""

from collections import Counter


class Traffic:
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By the name of the API."""
        self.closed: Counter[str] = Counter()
        """Connections that the server closed, by reason."""
        self.accepted = 0
        self.open = 0
        self.handler_faults = 0
        """Requests that failed in a way that nobody foresaw."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.held_bytes = 0
        """Bytes of requests that are being received or answered."""
