"""Requests and responses of SaslHandshake, SaslAuthenticate, DescribeUserScramCredentials, AlterUserScramCredentials."""

from typing import Annotated

from tailrace.wire.message import Api, Bytes, Int8, Int16, Int32, Int64, KafkaMessage, NullableSince, Since, String


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


class UserName(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""


class DescribeUserScramCredentialsRequest(KafkaMessage, frozen=True, kw_only=True):
    users: Annotated[tuple[UserName, ...] | None, NullableSince(0)] = ()


class CredentialInfo(KafkaMessage, frozen=True, kw_only=True):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(KafkaMessage, frozen=True, kw_only=True):
    user: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    credential_infos: tuple[CredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()


DESCRIBE_USER_SCRAM_CREDENTIALS_API = Api(
    50, "DescribeUserScramCredentials", 0, 0, 0, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
)


class ScramCredentialDeletion(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(KafkaMessage, frozen=True, kw_only=True):
    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


class AlterUserScramCredentialsResult(KafkaMessage, frozen=True, kw_only=True):
    user: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class AlterUserScramCredentialsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[AlterUserScramCredentialsResult, ...] = ()


ALTER_USER_SCRAM_CREDENTIALS_API = Api(
    51, "AlterUserScramCredentials", 0, 0, 0, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
)
