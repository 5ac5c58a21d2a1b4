"""The features of the cluster that clients are told with ApiVersions, and what becomes of requests to change them.

A feature names a part of the protocol by a level. Those here are parts that the server always speaks, so each has one level,
which is in force and can't be changed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.model.errors import InvalidFeatureUpdateError
from tailrace.wire.messages.cluster import FinalizedFeatureKey, SupportedFeatureKey

EPOCH = 0
"""The epoch of the finalized features, which never change."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_ZERO_SHOWN_SINCE = 4
"""Clients that ask with a lower version of ApiVersions do not take a feature whose lowest level is 0."""


class Feature(NamedTuple):
    name: str
    lowest: int
    highest: int
    level: int
    """The level in force."""


FEATURES = (
    # Groups of the consumer protocol (KIP-848).
    Feature("group.version", 1, 1, 1),
    # Each transaction gets an epoch, and writing to a partition adds it (KIP-890).
    Feature("transaction.version", 2, 2, 2),
)


def supported_features(version: int) -> tuple[SupportedFeatureKey, ...]:
    """Return the levels that the server could have, for this version of ApiVersions."""
    return tuple(
        SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
        for feature in FEATURES
        if feature.lowest > 0 or version >= _ZERO_SHOWN_SINCE
    )


def finalized_features() -> tuple[FinalizedFeatureKey, ...]:
    """Return the levels in force."""
    return tuple(
        FinalizedFeatureKey(name=feature.name, max_version_level=feature.level, min_version_level=feature.level)
        for feature in FEATURES
        if feature.level > 0
    )


def check_update(name: str, level: int, upgrade_type: int, features: Iterable[Feature] = FEATURES) -> None:
    """Raise unless the feature has this level already. As with Kafka, the first thing that is wrong is reported."""
    feature = next((each for each in features if each.name == name), None)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, f"upgrade type {upgrade_type} is unknown; use 1 (upgrade), 2 or 3 (downgrades)")
    if level < 0:
        raise _invalid(name, level, "a level is not below 0")
    if feature is None:
        raise _invalid(name, level, "the server has no such feature")
    if level == feature.level:
        return
    if not feature.lowest <= level <= feature.highest:
        raise _invalid(name, level, f"the server supports levels {feature.lowest} to {feature.highest}")
    raise _invalid(name, level, f"level {feature.level} is in force and can't be changed")


def _invalid(name: str, level: int, why: str) -> InvalidFeatureUpdateError:
    return InvalidFeatureUpdateError(f"feature {name!r} can't be set to level {level}: {why}")
