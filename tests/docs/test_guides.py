"""The examples of the guides and of the client's docstrings run as they stand, against a real server."""

import ast
import asyncio
import doctest
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace.client as client
from tailrace.client import config, values
from tailrace.client.config import CONNECTION_SETTINGS, CONSUMER_SETTINGS, PUBLISHER_SETTINGS, QUEUE_SETTINGS
from tests.docs.tables import ROOT, named_rows
from tests.support.api import Api
from tests.support.server import ServerProcess

GUIDES = [ROOT / "docs" / "guides" / f"{name}.md" for name in ("consumer", "publisher", "patterns", "queues")]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8080"
WITH_EXAMPLES = [
    getattr(client, prefix + name)
    for prefix in ("Async", "")
    for name in ("Client", "TopicConsumer", "Publisher", "Subscriber", "QueueSubscription")
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("guides") / "data") as server:
        api = Api(server.url)
        for topic in ("orders", "payments"):
            api.create_topic(topic)
        api.ask("/api/topics/publish", {"messages": [{"topic": "orders", "value": {"id": 0}}]})
        yield server.url


def run(source: str, url: str) -> None:
    assert ADDRESS in source
    code = compile(source.replace(ADDRESS, url), "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {name: getattr(client, name) for name in client.__all__}
    running = eval(code, names)  # noqa: S307  our own pages
    if inspect.iscoroutine(running):
        asyncio.run(running)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_examples_of_a_guide_run(guide: Path, url: str) -> None:
    examples = BLOCK.findall(guide.read_text())
    assert examples
    for example in examples:
        run(example, url)


@pytest.mark.parametrize("shape", WITH_EXAMPLES, ids=lambda shape: shape.__name__)
def test_the_example_of_a_class_runs(shape: type, url: str) -> None:
    example = inspect.getdoc(shape).partition("Example:\n")[2]  # type: ignore[union-attr]
    run(textwrap.dedent(example), url)


@pytest.mark.parametrize("module", [config, values], ids=lambda module: module.__name__)
def test_the_examples_of_values_are_right(module: Any) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


def test_every_setting_is_in_its_guide_with_kafkas_name() -> None:
    consumer, publisher, _, queues = (named_rows(guide) for guide in GUIDES)
    assert {name: cells[0] for name, cells in consumer.items()} == {
        name: f"`{setting.alias}`" for name, setting in CONSUMER_SETTINGS.items()
    }
    assert {name: cells[0] for name, cells in publisher.items()} == {
        name: f"`{setting.alias}`" for name, setting in PUBLISHER_SETTINGS.items() if name not in CONSUMER_SETTINGS
    }
    assert {name: cells[0] for name, cells in queues.items() if name in QUEUE_SETTINGS} == {
        name: f"`{setting.alias}`" for name, setting in QUEUE_SETTINGS.items() if name not in CONNECTION_SETTINGS
    }
