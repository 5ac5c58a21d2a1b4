"""Which topics a pattern stands for, as queues and subscriptions ask for every batch that arrives."""

from collections.abc import Callable

from tailrace.broker.topics.topics import Topics
from tailrace.model.ids import TopicId
from tailrace.model.names import TopicPattern
from tailrace.model.topic import Topic


class TopicMatcher:
    """Matches topics against a pattern and remembers the result for each topic."""

    def __init__(self, pattern: TopicPattern, topics: Topics, excludes: Callable[[str], bool] | None = None) -> None:
        """`excludes` is asked with the name of each topic that the pattern matches."""
        self._pattern = pattern
        self._topics = topics
        self._excludes = excludes
        self._results: dict[TopicId, tuple[Topic, bool]] = {}

    def matches(self, topic: Topic) -> bool:
        """Return whether the pattern matches the topic's name. A pattern without wildcards may be the topic's alias too."""
        known = self._results.get(topic.id)
        if known is None or known[0] is not topic:
            if len(self._results) > 2 * len(self._topics):
                # Most of these topics were deleted.
                self._results.clear()
            self._results[topic.id] = known = topic, self._match(topic)
        return known[1]

    def _match(self, topic: Topic) -> bool:
        pattern = self._pattern
        if not pattern.matches(topic.name):
            return pattern.is_literal and pattern.text == topic.alias
        return self._excludes is None or not self._excludes(topic.name)
