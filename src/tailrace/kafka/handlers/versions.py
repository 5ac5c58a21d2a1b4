"""ApiVersions: what clients ask first."""

from collections.abc import Callable, Sequence

from tailrace.kafka.dispatch import Call, Route
from tailrace.wire.messages import api_versions
from tailrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


class VersionHandlers:
    def __init__(self, offered: Callable[[], Sequence[ApiVersion]]) -> None:
        self._offered = offered

    def routes(self) -> list[Route]:
        return [Route(api_versions.API, self.versions)]

    def versions(self, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=tuple(self._offered()))
