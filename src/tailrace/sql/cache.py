"""From texts to statements: short ones are parsed in place, long ones in another process, those that come again not at all."""

from collections import OrderedDict
from collections.abc import Sequence

from tailrace.model.limits import KIB, Limits
from tailrace.sql.long_texts import LongTexts
from tailrace.sql.parse import check_size, parse
from tailrace.sql.statements import Statement

_IN_PLACE = KIB
"""The longest text that is parsed on the event loop, in a few milliseconds."""
_LONGEST_KEPT = 4 * KIB


class ParsedTexts:
    """The newest so many texts, with what they mean."""

    def __init__(self, limits: Limits, long_texts: LongTexts) -> None:
        self._limits = limits
        self._long_texts = long_texts
        self._known: OrderedDict[str, Sequence[Statement]] = OrderedDict()

    async def parse(self, text: str) -> Sequence[Statement]:
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        if len(text) <= _IN_PLACE:
            statements: Sequence[Statement] = parse(text, self._limits)
        else:
            check_size(text, self._limits)
            statements = await self._long_texts.parse(text)
        if len(text) <= _LONGEST_KEPT:
            self._known[text] = statements
            if len(self._known) > self._limits.parsed_texts:
                self._known.popitem(last=False)
        return statements
