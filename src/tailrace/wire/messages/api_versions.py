"""ApiVersions: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int16, Int32, Int64, Message, Since, String, Tag


class ApiVersionsRequest(Message, frozen=True, kw_only=True):
    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersion(Message, frozen=True, kw_only=True):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message, frozen=True, kw_only=True):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message, frozen=True, kw_only=True):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Since(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tag(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Since(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Boolean, Since(3), Tag(3)] = False


API = Api(18, "ApiVersions", 0, 4, 3, ApiVersionsRequest, ApiVersionsResponse)
