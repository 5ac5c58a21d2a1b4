"""A Tailrace server beside an Apache Kafka. The tests are those of `tests/integration/shadow`, and some more."""

import shutil
from collections.abc import Iterator

import pytest

from tailrace.model.address import Address
from tests.compat.tools.programs import KAFKA_JARS
from tests.integration.shadow.conftest import CONFIGURATION, inward, outward, shadow
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port
from tests.support.proxy import FaultyProxy
from tests.support.shadow_pair import ShadowPair, beside

__all__ = ["inward", "outward", "shadow"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip before anything is started."""
    if not (item.config.getoption("--everything") or item.config.getoption("--others")):
        pytest.skip("only in `make smoke` and `make compat`")
    if shutil.which("java") is None or not KAFKA_JARS.exists():
        pytest.skip("Java or Kafka's jars are not here (`make compat` gets them)")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShadowPair]:
    folder = tmp_path_factory.mktemp("shadows")
    config = folder / "tailrace.toml"
    config.write_text(CONFIGURATION)
    listens = Address("127.0.0.1", free_port())
    with FaultyProxy(f"http://{listens}") as network:
        kafka = ApacheKafka(KAFKA_JARS, folder / "kafka", listens, network.url.removeprefix("http://"))
        try:
            kafka.start()
            with beside(folder, kafka, network, "--config", str(config)) as running:
                yield running
        finally:
            kafka.kill()
