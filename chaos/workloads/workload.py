"""A workload: it prepares topics on a fresh server and brings its workers."""

from collections.abc import Sequence
from typing import NamedTuple

from chaos.api import Api
from chaos.history import Declared, Seen
from chaos.stage import Stage
from chaos.workers.worker import Site, TopicShape, Worker


class Load(NamedTuple):
    """How much of it: operations a second, for each worker in proportion."""

    factor: float = 1.0

    def per_second(self, usual: float) -> float:
        return usual * self.factor


class Workload:
    """`prepare` once, then the workers of `workers`; `topics` are what is read at the end."""

    name = ""

    def __init__(self, site: Site, seed: int, load: Load) -> None:
        self.site = site
        self.seed = seed
        self.load = load
        self.topics: list[TopicShape] = []

    def prepare(self, api: Api) -> None:
        raise NotImplementedError

    def attend(self, stage: Stage) -> None:
        """Start what it needs besides the server."""

    def workers(self) -> Sequence[Worker]:
        raise NotImplementedError

    def translate(self, seen: Seen) -> Seen:
        """A record as the checker wants it, for topics that hold more than plain values."""
        return seen

    def finish(self, api: Api) -> None:
        """Last questions of its own, when all workers have ended and nothing fails any more."""

    def make_topic(self, api: Api, name: str, partitions: int, *, kept: bool = True, **settings: object) -> TopicShape:
        shape = TopicShape(f"{self.name}.{name}", partitions)
        api.create_topic(shape.name, partitions, **settings)
        self.declare(shape, kept=kept)
        return shape

    def declare(self, shape: TopicShape, *, kept: bool = True, table: str = "", routed: bool = False) -> None:
        recorder = self.site.recorder
        recorder.write(Declared(recorder.now(), shape.name, kept, table, routed))
        self.topics.append(shape)
