"""The Kafka listener of a server that somebody else runs, for clients that are made for a peer."""

from bench.http.server import HttpServer


class KafkaListener:
    def __init__(self, server: HttpServer) -> None:
        self.name = server.name
        self.address = server.kafka
        self.pid = server.pid

    def start(self) -> float:
        """It runs already."""
        return 0.0

    def stop(self) -> None:
        """Whoever started it stops it."""
