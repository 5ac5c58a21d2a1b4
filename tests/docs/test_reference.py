"""Every limit, error, setting, metric, command-line flag and endpoint is in `docs/reference/`, and nothing else is."""

import asyncio
import json
import re
from collections.abc import Iterator

import msgspec
import pytest
import typer.main
from litestar import Litestar
from litestar.di import Provide

from tailrace.api.consume import AckBody, ConsumeBody, FetchBody, StartPosition, StartTime
from tailrace.api.groups import (
    BeginBody,
    CommitOffsetsBody,
    HeartbeatBody,
    JoinBody,
    LeaveBody,
    MemberAssignment,
    OfferedProtocol,
    OffsetToCommit,
    ResetOffsetsBody,
    SyncBody,
)
from tailrace.api.messages import PublishBody, SentHeader, SentMessage
from tailrace.api.queues import AckReceiptsBody, ExtendReceiptsBody, NackReceiptsBody, ReceiveBody
from tailrace.api.sql import SqlBody
from tailrace.api.tables import AddRouteBody
from tailrace.api.topics import ChangeTopicBody, CreateTopicBody
from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.settings import BrokerSettings
from tailrace.cli.commands import build_app
from tailrace.cli.errors import ExitCode
from tailrace.cli.settings import Configuration, PipelineSection, ServerSection
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.http.openapi import document
from tailrace.kafka.cluster import KafkaSettings
from tailrace.kafka.dispatch import ApiRoute
from tailrace.kafka.metrics import KafkaCollector, Traffic
from tailrace.kafka.topic_configs import show_configs
from tailrace.model.clock import SystemClock
from tailrace.model.errors import TailraceError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.topic import TopicOptions, TopicSettings
from tailrace.store.memory import MemoryStore
from tests.docs.tables import REFERENCE, named_rows
from tests.support.kafka import running_asker

CLOCK = SystemClock()
COMMANDS = {
    " ".join((name, *sub)): command
    for name, top in typer.main.get_command(build_app()).commands.items()  # type: ignore[attr-defined]
    for sub, command in [((), top), *(((each,), one) for each, one in getattr(top, "commands", {}).items())]
}
"""With those below others: `topics`, `topics list`."""


@pytest.fixture
def app() -> Litestar:
    return create_app(
        Broker(MemoryStore(), CLOCK), ServerStatus("fsync", CLOCK, lambda: None), DEFAULT_LIMITS, [KafkaCollector(Traffic())]
    ).load()


def test_every_limit_is_documented_with_its_default() -> None:
    documented = {name: cells[0] for name, cells in named_rows(REFERENCE / "limits.md").items()}
    assert documented == {name: f"{value:,}" for name, value in msgspec.structs.asdict(DEFAULT_LIMITS).items()}


def test_every_error_is_documented_with_what_each_surface_answers() -> None:
    documented = {name: cells[:4] for name, cells in named_rows(REFERENCE / "errors.md").items()}
    assert documented == {
        error.__name__: [str(error.http_status), str(error.kafka_code), "yes" if error.retriable else "no", error.outcome]
        for error in _subclasses(TailraceError)
    }


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {name: cells[0] for name, cells in named_rows(REFERENCE / "configuration.md").items()}
    assert documented == {
        f"{section}.{field.name}": "none" if field.default is None else f"`{json.dumps(field.default)}`"
        for section, shape in (
            ("server", ServerSection),
            ("pipeline", PipelineSection),
            ("broker", BrokerSettings),
            ("kafka", KafkaSettings),
            ("security", SecuritySettings),
        )
        for field in msgspec.structs.fields(shape)
    }


def test_every_section_of_the_configuration_file_is_documented() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    assert [section.name for section in msgspec.structs.fields(Configuration) if f"## `[{section.name}]`" not in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented_with_its_flags(command: str) -> None:
    text = (REFERENCE / "cli.md").read_text()
    section = re.split(r"\n##+ ", text.partition(f"## `tailrace {command}")[2])[0]
    assert section
    if any("--server" in parameter.opts for parameter in COMMANDS[command].params):
        # These flags have a section of their own.
        section += re.split(r"\n##+ ", text.partition("## Logging in")[2])[0]
    parameters = [name for parameter in COMMANDS[command].params for name in (parameter.opts[0], parameter.metavar) if name]
    assert [name for name in parameters if name.startswith("-") and f"`{name}" not in section] == []
    assert [name for name in parameters if name.isupper() and f"{name}`" not in section] == []


def test_every_endpoint_is_documented(app: Litestar) -> None:
    served = {f"{method.upper()} {path}" for path, methods in document(app)["paths"].items() for method in methods}
    text = (REFERENCE / "http.md").read_text()
    assert {name for name in named_rows(REFERENCE / "http.md") if "/" in name} == served
    assert [endpoint for endpoint in served if f"## `{endpoint}`" not in text and endpoint != "GET /metrics"] == []


def test_every_field_of_a_body_is_documented() -> None:
    text = (REFERENCE / "http.md").read_text()
    bodies = (
        *(CreateTopicBody, ChangeTopicBody, TopicOptions, SentMessage, SentHeader, PublishBody),
        *(ReceiveBody, AckReceiptsBody, NackReceiptsBody, ExtendReceiptsBody),
        *(ConsumeBody, StartPosition, StartTime, AckBody, ResetOffsetsBody, SqlBody, AddRouteBody, FetchBody),
        *(
            JoinBody,
            OfferedProtocol,
            SyncBody,
            MemberAssignment,
            HeartbeatBody,
            LeaveBody,
            BeginBody,
            CommitOffsetsBody,
            OffsetToCommit,
        ),
    )
    fields = {field.encode_name for body in bodies for field in msgspec.structs.fields(body)}
    assert sorted(field for field in fields if not re.search(rf'[`"]{field}[`"]', text)) == []


def test_every_metric_is_documented_with_its_type(app: Litestar) -> None:
    given = app.dependencies["registry"]
    assert isinstance(given, Provide)
    registry = given.dependency()
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in registry.collect()
        if family.name.startswith("tailrace_")
    }
    assert {name: cells[0] for name, cells in named_rows(REFERENCE / "metrics.md").items()} == shown


def test_every_kafka_api_is_documented_with_its_versions() -> None:
    async def routes() -> list[ApiRoute]:
        async with running_asker(KafkaSettings(client_telemetry=True)) as asker:
            return asker.dispatcher.routes

    served = {
        route.api.name: [str(route.api.key), f"{route.versions[0]} to {route.versions[-1]}"] for route in asyncio.run(routes())
    }
    documented = named_rows(REFERENCE / "kafka.md")
    assert {name: cells[:2] for name, cells in documented.items() if name[0].isupper()} == served


def test_every_topic_config_is_documented_with_its_default() -> None:
    documented = {name: cells[0] for name, cells in named_rows(REFERENCE / "kafka.md").items() if name[0].islower()}
    shown = {config.name: config.value for config in show_configs(None, TopicSettings(), DEFAULT_LIMITS)}
    assert documented == {name: f"`{value}`" if value else "none" for name, value in shown.items()}


def test_every_exit_code_is_documented() -> None:
    assert set(named_rows(REFERENCE / "cli.md")) >= {str(code.value) for code in ExitCode}


def _subclasses(root: type[TailraceError]) -> Iterator[type[TailraceError]]:
    yield root
    for child in root.__subclasses__():
        yield from _subclasses(child)
