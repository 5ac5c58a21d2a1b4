"""The `tailrace` command with a log of small files, and with a known fault if `CHAOS_BROKEN` names one.

With small segments, checkpoints and pauses of the cleaner, a run of minutes rolls, saves and cleans often. The known faults
are those of `chaos.broken.patches`, by which the checker itself is tested.
"""

import os

from tailrace.cli.main import main
from tailrace.log.options import LogOptions
from tailrace.model.limits import KIB
from tailrace.store.embedded import EmbeddedStore

SMALL = LogOptions(segment_bytes=256 * KIB, checkpoint_bytes=512 * KIB, checkpoint_batches=2_000, clean_interval_seconds=2.0)


def use_small_files() -> None:
    defaults = EmbeddedStore.open.__func__.__kwdefaults__  # type: ignore[attr-defined]
    assert "options" in defaults, "EmbeddedStore.open takes its options by another name now"
    defaults["options"] = SMALL


if __name__ == "__main__":
    use_small_files()
    if name := os.environ.get("CHAOS_BROKEN"):
        from chaos.broken.patches import PATCHES

        PATCHES[name]()
    main()
