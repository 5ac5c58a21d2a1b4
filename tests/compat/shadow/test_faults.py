"""What `tests/integration/shadow/test_faults.py` says is true of an Apache Kafka too."""

from tests.integration.shadow.test_faults import *  # noqa: F403
