"""SaslHandshake and SaslAuthenticate: the logins of connections (`kafka/sasl.py`)."""

from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.errors import IllegalSaslStateError, TailraceError
from tailrace.wire.messages.authentication import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_WITH_MESSAGES = 1
"""The first version of SaslHandshake after which messages come as requests, and not as bytes without a head."""


class SaslHandlers:
    def routes(self) -> list[ApiRoute]:
        # librdkafka concludes from a missing version 0 that the broker can't do any handshake; it uses version 1.
        return [
            ApiRoute(SASL_HANDSHAKE_API, self.handshake, lowest=_WITH_MESSAGES, claimed_lowest=0),
            ApiRoute(SASL_AUTHENTICATE_API, self.authenticate),
        ]

    def handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        session = context.client.session
        if session is None:
            return SaslHandshakeResponse(error_code=IllegalSaslStateError.kafka_code)
        try:
            session.handshake(request.mechanism)
        except TailraceError as error:
            return SaslHandshakeResponse(error_code=error.kafka_code, mechanisms=session.mechanisms)
        return SaslHandshakeResponse(mechanisms=session.mechanisms)

    async def authenticate(self, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        session = context.client.session
        if session is None:
            return SaslAuthenticateResponse(
                error_code=IllegalSaslStateError.kafka_code, error_message="the server does not ask for authentication"
            )
        try:
            answer = await session.authenticate(bytes(request.auth_bytes))
        except TailraceError as error:
            return SaslAuthenticateResponse(error_code=error.kafka_code, error_message=str(error))
        return SaslAuthenticateResponse(error_message=None, auth_bytes=answer.message, session_lifetime_ms=answer.lifetime_ms)
