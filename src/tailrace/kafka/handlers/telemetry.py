"""GetTelemetrySubscriptions and PushTelemetry. They are not offered if `kafka.client_telemetry` is off."""

from tailrace.kafka.client_telemetry import ACCEPTED_CODECS, ClientTelemetry
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.limits import Limits
from tailrace.wire.messages.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS_API,
    PUSH_TELEMETRY_API,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)


class TelemetryHandlers:
    def __init__(self, telemetry: ClientTelemetry, limits: Limits) -> None:
        self._telemetry = telemetry
        self._limits = limits

    def routes(self) -> list[ApiRoute]:
        return [ApiRoute(GET_TELEMETRY_SUBSCRIPTIONS_API, self.subscribe), ApiRoute(PUSH_TELEMETRY_API, self.push)]

    def subscribe(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        instance_id = self._telemetry.subscribe(context, request.client_instance_id)
        subscription = self._telemetry.subscription
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=subscription.id,
            accepted_compression_types=ACCEPTED_CODECS,
            push_interval_ms=subscription.interval_ms,
            telemetry_max_bytes=self._limits.telemetry_bytes,
            requested_metrics=subscription.metrics,
        )

    async def push(self, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
        await self._telemetry.push(context, request)
        return PushTelemetryResponse()
