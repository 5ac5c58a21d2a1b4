"""Texts that come again and again are parsed once: the newest so many are kept with what they mean."""

from collections import OrderedDict
from collections.abc import Sequence

from tailrace.model.limits import KIB, Limits
from tailrace.sql.parse import parse
from tailrace.sql.statements import Statement

_LONGEST_TEXT = 4 * KIB


class ParsedTexts:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[str, Sequence[Statement]] = OrderedDict()

    def parse(self, text: str) -> Sequence[Statement]:
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        statements = parse(text, self._limits)
        if len(text) <= _LONGEST_TEXT:
            self._known[text] = statements
            if len(self._known) > self._limits.parsed_texts:
                self._known.popitem(last=False)
        return statements
