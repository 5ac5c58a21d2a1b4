"""Tries the inputs of a target, one after another, until one does harm or time or tries are up."""

import asyncio
import time
from contextlib import aclosing
from random import Random
from typing import NamedTuple

from tailrace.model.errors import TailraceError
from tests.fuzz.seeds import Seeds
from tests.fuzz.targets import Target

TRY_SECONDS = 10.0


class Find(NamedTuple):
    """An input that did harm."""

    tries: int
    data: bytes
    error: BaseException


async def fuzz(target: Target, random: Random, *, seconds: float = 600, most: int | None = None) -> Find | int:
    """What was found, or how many inputs were tried."""
    tries = 0
    deadline = time.monotonic() + seconds
    async with aclosing(target(random, Seeds(random))) as inputs:
        async for data, act in inputs:
            tries += 1
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    await act(data)
            except TailraceError:
                # A refusal, which is what bad input is for.
                pass
            except Exception as error:  # noqa: BLE001  whatever else it is, it is a find
                return Find(tries, data, error)
            if tries == most or time.monotonic() > deadline:
                break
    return tries
