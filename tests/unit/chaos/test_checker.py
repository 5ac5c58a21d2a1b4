"""The checker as a whole: correct histories pass, and whatever is corrupted in them is named."""

import pytest

from chaos.checker.judging import judge
from chaos.checker.rules import RULES
from chaos.checker.violation import Verdict
from tests.unit.chaos.corruptions import CORRUPTIONS, Corruption, Draft
from tests.unit.chaos.histories import Story
from tests.unit.chaos.model import right_history

SEEDS = range(4)
STEPS = 3000


@pytest.fixture(scope="module")
def histories() -> list[Story]:
    return [right_history(seed, STEPS) for seed in SEEDS]


def test_right_histories_pass(histories: list[Story]) -> None:
    for seed, story in zip(SEEDS, histories, strict=True):
        judgement = judge(story.lines)
        assert judgement.verdict is Verdict.PASS, (seed, judgement.violations[:1], judgement.doubts)


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.spoil.__name__)
def test_what_is_made_wrong_is_named(histories: list[Story], corruption: Corruption) -> None:
    for seed, story in zip(SEEDS, histories, strict=True):
        draft = Draft(story.lines, seed)
        corruption.spoil(draft)
        judgement = judge(draft.lines)
        assert judgement.verdict is Verdict.FAIL
        assert corruption.rule in judgement.rules_broken, (seed, judgement.rules_broken)


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
