"""`make fuzz`: fuzzes every target in turn until the time is up. The seed is printed; the same seed tries the same inputs."""

import argparse
import asyncio
import logging
import resource
import sys
import time
from pathlib import Path
from random import Random, SystemRandom

from tests.fuzz.targets import TARGETS, HarmfulInput, fuzz

MAX_MEMORY_MIB = 1_024


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description="Look for harmful input.")
    parser.add_argument("--seconds", type=float, default=300, help="for all targets together (300)")
    parser.add_argument("--seed", type=int, help="try the inputs of an earlier run")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this target; may be given several times")
    parser.add_argument("--finds", type=Path, default=Path("build/fuzz"), metavar="FOLDER", help="folder for harmful inputs")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else SystemRandom().getrandbits(32)
    names = given.target or list(TARGETS)
    print(f"seed {seed}; {given.seconds:g} s for {', '.join(names)}", flush=True)
    logging.disable(logging.CRITICAL)
    for name in names:
        began = time.monotonic()
        outcome = asyncio.run(fuzz(TARGETS[name], Random(f"{seed} {name}"), seconds=given.seconds / len(names)))
        if isinstance(outcome, HarmfulInput):
            given.finds.mkdir(parents=True, exist_ok=True)
            path = given.finds / f"{name}-{seed}-{outcome.tries}.bin"
            path.write_bytes(outcome.data)
            print(f"{name}: input {outcome.tries} is harmful: {outcome.error!r}")
            print(f"The input is in {path}. To try again: --target {name} --seed {seed}")
            return 1
        print(f"{name}: {outcome:,} tries in {time.monotonic() - began:.0f} s, no harmful input", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak memory: {peak} MiB")
    if peak > MAX_MEMORY_MIB:
        print(f"that is more than {MAX_MEMORY_MIB} MiB: some input makes the server take too much memory")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
