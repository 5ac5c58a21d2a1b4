"""What `tests/integration/shadow/test_cut_over.py` says is true of an Apache Kafka too."""

from tests.integration.shadow.test_cut_over import *  # noqa: F403
