"""What `tests/integration/shadow/test_groups.py` says is true of an Apache Kafka too."""

from tests.integration.shadow.test_groups import *  # noqa: F403
