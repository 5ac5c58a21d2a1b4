"""The regular expressions of Kafka's clients, which mean what RE2 says, as in Kafka.

RE2 matches in time that is linear in the length of a name, and nothing in an expression can make it backtrack. A name matches
if the whole of it does. Expressions are compiled in a thread, because a large one takes some hundred milliseconds.
"""

from collections.abc import Collection, Iterable, Mapping

from tailrace.broker.read_threads import ReadThreads
from tailrace.model.errors import InvalidRegularExpressionError
from tailrace.model.limits import Limits


class RegularExpressions:
    def __init__(self, threads: ReadThreads, limits: Limits) -> None:
        self._threads = threads
        self._limits = limits

    async def match(self, patterns: Iterable[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Return the names that match each pattern. Raises `InvalidRegularExpressionError`."""
        wanted = tuple(patterns)
        if not wanted:
            return {}
        for pattern in wanted:
            size = len(pattern.encode())
            if size > self._limits.topic_pattern_bytes:
                raise InvalidRegularExpressionError(
                    f"the regular expression has {size} bytes, more than topic_pattern_bytes allows"
                    f" ({self._limits.topic_pattern_bytes})"
                )
        return await self._threads.run(_match, wanted, tuple(names))


def _match(patterns: tuple[str, ...], names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    # Not needed by a server whose clients use no regular expressions.
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(names, pa.string())
    # Of an array without elements no pattern is compiled.
    nothing = pa.array([""])
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            # By itself, too: a closing parenthesis that opens nowhere would end the group around the pattern.
            pc.match_substring_regex(nothing, pattern)
            matches = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
        except pa.ArrowInvalid as error:
            raise InvalidRegularExpressionError(f"the regular expression {pattern!r} is not valid: {error}") from error
        found[pattern] = frozenset(name for name, is_match in zip(names, matches.to_pylist(), strict=True) if is_match)
    return found
