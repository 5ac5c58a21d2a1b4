"""What `tests/integration/shadow/test_copy.py` says is true of an Apache Kafka too."""

from tests.integration.shadow.test_copy import *  # noqa: F403
