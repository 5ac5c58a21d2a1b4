"""ApiVersions: what clients ask first."""

from collections.abc import Callable, Sequence

from tailrace.kafka.dispatch import Call, Route
from tailrace.wire.messages import api_versions
from tailrace.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_TRANSACTIONS = "transaction.version"
_WITH_EPOCHS = 2
"""By this clients know that they get an epoch for each transaction and add partitions by writing to them."""


class VersionHandlers:
    def __init__(self, offered: Callable[[], Sequence[ApiVersion]]) -> None:
        self._offered = offered

    def routes(self) -> list[Route]:
        return [Route(api_versions.API, self.versions)]

    def versions(self, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=tuple(self._offered()),
            supported_features=(SupportedFeatureKey(name=_TRANSACTIONS, min_version=1, max_version=_WITH_EPOCHS),),
            finalized_features_epoch=0,
            finalized_features=(
                FinalizedFeatureKey(name=_TRANSACTIONS, max_version_level=_WITH_EPOCHS, min_version_level=_WITH_EPOCHS),
            ),
        )
