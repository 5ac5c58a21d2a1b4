"""Two servers that the tests of a module share. A test that kills one has its own."""

from collections.abc import Iterator

import pytest

from tests.support.shadow_pair import ShadowPair, TestedShadow, shadow_pair

CONFIGURATION = """
[limits]
shadow_fence_silence_seconds = 3
[broker]
compaction_interval_seconds = 1
compaction_roll_seconds = 1
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShadowPair]:
    folder = tmp_path_factory.mktemp("shadows")
    config = folder / "tailrace.toml"
    config.write_text(CONFIGURATION)
    with shadow_pair(folder, "--config", str(config)) as running:
        yield running


@pytest.fixture
def outward(pair: ShadowPair) -> Iterator[TestedShadow]:
    """A shadow to Kafka, not created yet."""
    shadow = pair.shadow("to")
    yield shadow
    shadow.drop()


@pytest.fixture
def inward(pair: ShadowPair) -> Iterator[TestedShadow]:
    """A shadow from Kafka, not created yet."""
    shadow = pair.shadow("from")
    yield shadow
    shadow.drop()


@pytest.fixture(params=["to", "from"])
def shadow(request: pytest.FixtureRequest, pair: ShadowPair) -> Iterator[TestedShadow]:
    """A shadow in each direction, not created yet."""
    made = pair.shadow(request.param)
    yield made
    made.drop()
