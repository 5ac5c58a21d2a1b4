"""Every client plays every scenario that it can express."""

import itertools
import re
from collections.abc import Callable

import pytest

from tests.compat.contract import Client, Unsupported
from tests.compat.grid import Grid
from tests.compat.kinds import KINDS, ClientKind
from tests.compat.known import KNOWN_FAILURES
from tests.compat.process import ClientProcess
from tests.compat.scenarios import SCENARIOS, Scenario, Stage

pytestmark = pytest.mark.timeout(400)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_client_works(
    kind: ClientKind,
    scenario: Scenario,
    start: Callable[[ClientKind], ClientProcess],
    main_process: Callable[[ClientKind], ClientProcess],
    referee: Client,
    grid: Grid,
    volume: int,
    members: int,
    all_clients: bool,
    offers_transactions: bool,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    def skip(sort: str, reason: str) -> None:
        record_property(sort, reason)
        pytest.skip(reason)

    if not (kind.always or all_clients):
        skip("not tried", "only in `make smoke` and `make compat`")
    if (missing := kind.missing()) is not None:
        skip("not tried", missing)
    if scenario.transactional and not offers_transactions:
        skip("not tried", "This server does not offer transactions.")
    if (known := KNOWN_FAILURES.get((kind.name, scenario.name))) is not None:
        record_property("known", known)
        request.applymarker(pytest.mark.xfail(reason=known, strict=True))
    name = f"{kind.name}.{scenario.name}"
    stage = Stage(main_process(kind), lambda: start(kind), referee, name, f"group.{name}", volume, members)
    try:
        scenario.play(stage)
    except Unsupported as reason:
        skip("unsupported", str(reason))


def test_every_known_failure_names_a_client_and_a_scenario() -> None:
    known = itertools.product((kind.name for kind in KINDS), (scenario.name for scenario in SCENARIOS))
    assert set(KNOWN_FAILURES) <= set(known)


def test_every_client_and_every_scenario_has_a_name_of_its_own() -> None:
    for names in ([kind.name for kind in KINDS], [scenario.name for scenario in SCENARIOS]):
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)
