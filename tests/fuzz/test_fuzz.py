"""A short run of what `make fuzz` does at length, and the proof that it finds harmful input."""

from collections.abc import AsyncGenerator
from random import Random

import pytest

from tailrace.model.errors import CorruptBatchError
from tests.fuzz.inputs import FuzzSeeds, mutated
from tests.fuzz.targets import TARGETS, FuzzInput, HarmfulInput, fuzz
from tests.support.aio import on_loop

TRIES = {"messages": 1_500, "batches": 1_500, "codecs": 1_500, "metrics": 1_500, "requests": 600, "connections": 150}


@pytest.mark.parametrize("name", TARGETS)
@on_loop
async def test_no_input_does_harm(name: str) -> None:
    outcome = await fuzz(TARGETS[name], Random(name), most=TRIES[name])
    assert outcome == TRIES[name]


async def planted(random: Random, seeds: FuzzSeeds) -> AsyncGenerator[FuzzInput, None]:
    """Reject input with a byte of 0, and fail for input with a byte of 255."""

    async def read(data: bytes) -> None:
        if 0 in data:
            raise CorruptBatchError("expected")
        if 255 in data:
            raise IndexError("unexpected")

    while True:
        yield FuzzInput(bytes(mutated(random, b"harmless", [b"\0" * 9])), read)


@on_loop
async def test_a_fault_is_found_and_found_again_by_its_seed() -> None:
    first, second = [await fuzz(planted, Random(5), most=5_000) for _ in range(2)]
    assert isinstance(first, HarmfulInput)
    assert isinstance(second, HarmfulInput)
    assert first.data == second.data
    assert 255 in first.data
    assert 0 not in first.data
    assert isinstance(first.error, IndexError)
