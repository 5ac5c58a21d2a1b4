"""One server and one process a client for the whole run; `pytest tests/compat --everything` plays all and writes the grid."""

import itertools
from collections.abc import Callable, Generator, Iterator

import pytest

# Before anything imports them, so that a failed assertion shows its values.
pytest.register_assert_rewrite("tests.compat.scenarios")

from tailrace import __version__  # noqa: E402
from tailrace.wire.messages.cluster import API_VERSIONS_API, ApiVersionsRequest  # noqa: E402
from tests.compat.clients.confluent import Adapter as Confluent  # noqa: E402
from tests.compat.contract import Client  # noqa: E402
from tests.compat.grid import Cell, Column, Grid  # noqa: E402
from tests.compat.kinds import KINDS, ClientKind  # noqa: E402
from tests.compat.page import CLIENTS_HEADING, write_section  # noqa: E402
from tests.compat.process import ClientProcess  # noqa: E402
from tests.compat.scenarios import SCENARIOS, Scenario  # noqa: E402
from tests.compat.tools import rows  # noqa: E402
from tests.support.kafka import RawClient  # noqa: E402
from tests.support.server import ServerProcess  # noqa: E402
from tools.record_frames import FRAMES, Recorder  # noqa: E402

REFEREE_ID = "referee"
END_TXN = 26
"""The API without which there are no transactions."""
FEW_RECORDS, MANY_RECORDS = 2_000, 100_000
FEW_MEMBERS, MANY_MEMBERS = 4, 10


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(rows)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everything", action="store_true", help="all clients and full volumes; writes the grid")
    parser.addoption("--others", action="store_true", help="the clients that PyPI does not have too, with few records")
    parser.addoption("--record", action="store_true", help="keep new kinds of requests in tests/data/frames")


@pytest.fixture(scope="session")
def everything(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--everything", default=False))


@pytest.fixture(scope="session")
def all_clients(request: pytest.FixtureRequest, everything: bool) -> bool:
    return everything or bool(request.config.getoption("--others", default=False))


@pytest.fixture(scope="session")
def volume(everything: bool) -> int:
    return MANY_RECORDS if everything else FEW_RECORDS


@pytest.fixture(scope="session")
def members(everything: bool) -> int:
    return MANY_MEMBERS if everything else FEW_MEMBERS


@pytest.fixture(scope="session")
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder | None]:
    """Stands between the clients and the server in runs that record."""
    if not request.config.getoption("--record", default=False):
        yield None
        return
    recorder = Recorder(FRAMES, ignored_ids=[REFEREE_ID.encode()])
    yield recorder
    recorder.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder | None) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("compat")
    config = folder / "tailrace.toml"
    # Sessions are short, so that members that are lost are missed soon.
    config.write_text(
        "[broker]\ngroup_min_session_ms = 500\n"
        "[limits]\ngroup_consumer_session_timeout_ms = 6_000\ngroup_consumer_heartbeat_interval_ms = 500\n"
    )
    advertised = () if recorder is None else ("--advertise", recorder.listen())
    with ServerProcess(folder / "data", "--config", str(config), *advertised) as running:
        if recorder is not None:
            recorder.forward(running.kafka)
        yield running


@pytest.fixture
def recorded(kind: ClientKind, recorder: Recorder | None) -> None:
    if recorder is not None:
        recorder.client = kind.name


@pytest.fixture(scope="session")
def offers_transactions(server: ServerProcess) -> bool:
    with RawClient(server.kafka) as raw:
        answer = raw.ask(API_VERSIONS_API, ApiVersionsRequest(client_software_name="compat", client_software_version="1"), 3)
    return any(each.api_key == END_TXN for each in answer.api_keys)


@pytest.fixture(scope="session")
def referee(server: ServerProcess) -> Client:
    return Confluent(server.kafka, client_id=REFEREE_ID)


@pytest.fixture(scope="session")
def start(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[ClientKind], ClientProcess]]:
    """Starts a process of a client; all are killed at the end of the run."""
    logs = tmp_path_factory.mktemp("clients")
    numbers = itertools.count()
    started: list[ClientProcess] = []

    def start(kind: ClientKind) -> ClientProcess:
        started.append(ClientProcess(kind.command(server.kafka), logs / f"{kind.name}-{next(numbers)}.log"))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def main_process(start: Callable[[ClientKind], ClientProcess]) -> Callable[[ClientKind], ClientProcess]:
    """The one process of a client that its scenarios share."""
    running: dict[str, ClientProcess] = {}

    def get(kind: ClientKind) -> ClientProcess:
        if kind.name not in running:
            running[kind.name] = start(kind)
        return running[kind.name]

    return get


@pytest.fixture(scope="session")
def grid(everything: bool, volume: int) -> Iterator[Grid]:
    grid = Grid(SCENARIOS)
    yield grid
    if everything:
        columns = [Column(kind.name, kind.title, "not installed" if kind.missing() else kind.version()) for kind in KINDS]
        if grid.is_complete(columns):
            facts = {"Tailrace": __version__, "Records through each codec": f"{volume:,}"}
            write_section(CLIENTS_HEADING, grid.render(columns, facts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    played = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
    if call.when == "call" and played and "scenario" in played:
        _enter(item.funcargs["grid"], played["kind"], played["scenario"], report)  # type: ignore[attr-defined]
    return report


def _enter(grid: Grid, kind: ClientKind, scenario: Scenario, report: pytest.TestReport) -> None:
    properties = dict(report.user_properties)
    if "unsupported" in properties:
        cell = Cell("n/a", str(properties["unsupported"]))
    elif "not tried" in properties:
        cell = Cell("not run", str(properties["not tried"]))
    elif report.outcome == "passed":
        cell = Cell("works")
    else:
        cell = Cell("fails", str(properties.get("known", "found by this run")))
    grid.enter(kind.name, scenario.name, cell)
