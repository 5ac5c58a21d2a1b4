"""The table of scenarios: each is written once, in the words of the contract, and played by every client that has them."""

from tests.compat.scenarios import administration, groups, reading, records, transactions
from tests.compat.scenarios.stage import Scenario, Stage

SCENARIOS = (
    *records.SCENARIOS,
    *reading.SCENARIOS,
    *groups.SCENARIOS,
    *administration.SCENARIOS,
    *transactions.SCENARIOS,
)

__all__ = ["SCENARIOS", "Scenario", "Stage"]
