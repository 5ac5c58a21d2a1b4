"""A background job: payloads that nobody refers to go.

First the references of records that are gone are forgotten, in commits of their own. What they referred to is looked at one
sweep later: by then even a store that answers before it syncs has synced, and readers who were at such a record are done.
The first sweep after the start looks at all payloads there are, and finds what a killed process left behind.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from tailrace.broker.commits.commit import Committer
from tailrace.broker.commits.proposal import Change
from tailrace.broker.payloads.payloads import Payloads
from tailrace.broker.payloads.references import PayloadReferences, PayloadUse
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.commit import Changes
from tailrace.model.killpoint import killpoint

_FORGOTTEN_AT_ONCE = 1_000
_REMOVED_AT_ONCE = 50
"""Publishers with large values wait for so many at most."""
_MOST_REMEMBERED = 100_000


class PayloadSweep:
    def __init__(self, committer: Committer, threads: ReadThreads, references: PayloadReferences, payloads: Payloads) -> None:
        self._committer = committer
        self._threads = threads
        self._references = references
        self._payloads = payloads
        self._suspects: set[bytes] = set()
        """Digests that lost a reference, or never got one."""
        self._suspects_all = True
        """Not known which, so all are to be looked at."""

    async def run_once(self) -> int:
        """Remove what is due and say how many payloads went."""
        suspects = iter(self._suspects | await self._payloads.abandoned())
        if self._suspects_all:
            suspects = self._payloads.digests()
        self._suspects, self._suspects_all = set(), False
        try:
            removed = await self._remove(suspects)
            await self._forget()
        except BaseException:
            self._suspects_all = True
            raise
        return removed

    async def _remove(self, suspects: Iterator[bytes]) -> int:
        removed = 0
        while some := await self._threads.run(lambda: list(islice(suspects, _REMOVED_AT_ONCE))):
            removed += await self._payloads.remove_unused(some)
        return removed

    async def _forget(self) -> None:
        """Forget references of records that are gone."""
        while True:
            gone = await self._threads.run(self._references.of_gone_records, _FORGOTTEN_AT_ONCE)
            if not gone:
                return
            await self._forget_these(gone)
            if len(gone) < _FORGOTTEN_AT_ONCE:
                return

    async def _forget_these(self, gone: Sequence[PayloadUse]) -> None:
        # Offsets and topic ids are never used again, so what was gone when it was looked for is gone for ever.
        changes = Changes(puts=tuple((key, None) for use in gone for key in use.state_keys))
        await self._committer.submit(Change(lambda: changes, lambda _: None))
        killpoint("payload.forgotten")
        if len(self._suspects) < _MOST_REMEMBERED:
            self._suspects.update(use.reference.digest for use in gone)
        else:
            self._suspects_all = True
