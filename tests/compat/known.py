"""What is known not to work today, with the reason that the grid shows. A fix makes the test fail until its line is gone."""

from tests.compat.kinds import KINDS

KNOWN_FAILURES: dict[tuple[str, str], str] = {
    (kind.name, "larger-topic"): "`max.message.bytes` of a topic can not be raised above 1,114,112." for kind in KINDS
}
"""By client and scenario."""
