"""Requests and responses of GetTelemetrySubscriptions, PushTelemetry."""

from tailrace.wire.message import NO_UUID, Api, Boolean, Bytes, Int8, Int16, Int32, KafkaMessage, String, Uuid


class GetTelemetrySubscriptionsRequest(KafkaMessage, frozen=True, kw_only=True):
    client_instance_id: Uuid = NO_UUID


class GetTelemetrySubscriptionsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: tuple[Int8, ...] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Boolean = False
    requested_metrics: tuple[String, ...] = ()


GET_TELEMETRY_SUBSCRIPTIONS_API = Api(
    71, "GetTelemetrySubscriptions", 0, 0, 0, GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
)


class PushTelemetryRequest(KafkaMessage, frozen=True, kw_only=True):
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    terminating: Boolean = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


PUSH_TELEMETRY_API = Api(72, "PushTelemetry", 0, 0, 0, PushTelemetryRequest, PushTelemetryResponse)
