"""Requests and responses of SaslHandshake, SaslAuthenticate."""

from typing import Annotated

from tailrace.wire.message import Api, Bytes, Int16, Int64, KafkaMessage, NullableSince, Since, String


class SaslHandshakeRequest(KafkaMessage, frozen=True, kw_only=True):
    mechanism: String = ""


class SaslHandshakeResponse(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()


SASL_HANDSHAKE_API = Api(17, "SaslHandshake", 0, 1, 2, SaslHandshakeRequest, SaslHandshakeResponse)


class SaslAuthenticateRequest(KafkaMessage, frozen=True, kw_only=True):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


SASL_AUTHENTICATE_API = Api(36, "SaslAuthenticate", 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse)
