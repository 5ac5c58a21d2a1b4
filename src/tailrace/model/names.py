"""Which names are legal. Topic names are legal in Kafka and hierarchical: parts between dots."""

import re

from tailrace.model.errors import (
    InvalidGroupNameError,
    InvalidRequestError,
    InvalidTopicNameError,
    InvalidTransactionalIdError,
)
from tailrace.model.limits import Limits
from tailrace.model.route import ROUTES_TOPIC
from tailrace.model.table import CHANGES_PREFIX

_SYSTEM_PREFIX = "system."

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str, limits: Limits) -> None:
    """A topic's name or alias."""
    if not name:
        raise InvalidTopicNameError("a topic's name can't be empty")
    if len(name) > limits.topic_name_length:
        raise InvalidTopicNameError(
            f"the topic name {name[:32]!r}... has {len(name)} characters, more than topic_name_length allows"
            f" ({limits.topic_name_length})"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicNameError(f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'")
    segments = name.split(".")
    if not all(segments):
        raise InvalidTopicNameError(f"the topic name {name!r} has an empty part; put something before and after each dot")
    if len(segments) > limits.topic_segments:
        raise InvalidTopicNameError(
            f"the topic name {name!r} has {len(segments)} parts, more than topic_segments allows ({limits.topic_segments})"
        )


def is_reserved(name: str) -> bool:
    """Whether topics of that name are the server's own: changes of tables, routes, and what queries see as `system`."""
    return name == ROUTES_TOPIC or name.startswith((CHANGES_PREFIX, _SYSTEM_PREFIX))


def check_group_name(name: str, limits: Limits) -> None:
    if not name:
        raise InvalidGroupNameError("a group's name can't be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidGroupNameError(f"the group name {name!r} is not valid Unicode") from None
    if size > limits.group_name_length:
        raise InvalidGroupNameError(
            f"the group name {name[:32]!r}... has {size} bytes, more than group_name_length allows ({limits.group_name_length})"
        )


def check_transactional_id(name: str, limits: Limits) -> None:
    if not name:
        raise InvalidTransactionalIdError("a transactional id can't be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidTransactionalIdError(f"the transactional id {name!r} is not valid Unicode") from None
    if size > limits.transactional_id_length:
        raise InvalidTransactionalIdError(
            f"the transactional id {name[:32]!r}... has {size} bytes, more than transactional_id_length allows"
            f" ({limits.transactional_id_length})"
        )


def check_pipeline_name(name: str, limits: Limits) -> None:
    if not _LEGAL.fullmatch(name) or len(name) > limits.pipeline_name_length:
        raise InvalidRequestError(
            f"the pipeline name {name[:32]!r} must have letters, digits, '.', '_' and '-', at most pipeline_name_length"
            f" ({limits.pipeline_name_length}) of them"
        )
