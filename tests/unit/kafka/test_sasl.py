"""Logins of Kafka connections: what is answered before, what a failed one costs, and how long a login counts."""

import asyncio
import gc
import weakref
from typing import Any

import msgspec
import pytest

from tailrace.broker.security.authentication import Login
from tailrace.broker.security.settings import SecuritySettings
from tailrace.kafka.apis import create_authentication
from tailrace.kafka.sasl import KafkaSession
from tailrace.model.errors import AuthenticationError
from tailrace.model.limits import Limits
from tailrace.model.security import Grant, Principal
from tailrace.wire.messages.authentication import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tailrace.wire.messages.cluster import (
    API_VERSIONS_API,
    METADATA_API,
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.support.aio import on_loop, until
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.kafka import frame, running_asker, sized
from tests.support.sasl import REQUIRED, SaslSide, ScramClient, SecuredKafka, secured_kafka

PASSWORD = "correct horse battery staple"  # noqa: S105  of nobody
NEEDS_LOGIN = sized(frame(METADATA_API, 12, MetadataRequest(topics=None)))
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58


async def logged_in(kafka: SecuredKafka, mechanism: str = "SCRAM-SHA-256", secret: str = PASSWORD) -> SaslSide:
    side = await kafka.connect()
    answer = await side.log_in("alice", secret, mechanism)
    assert answer.error_code == 0, answer.error_message
    return side


async def is_served(side: SaslSide) -> bool:
    answer = await side.ask(METADATA_API, MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 12)
    return len(answer.topics) == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@on_loop
async def test_a_password_logs_in(mechanism: str) -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await logged_in(kafka, mechanism)
        assert await is_served(side)


@on_loop
async def test_a_token_logs_in() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice")
        token = await kafka.broker.users.create_token("alice")
        side = await logged_in(kafka, "OAUTHBEARER", token.text)
        assert await is_served(side)


@on_loop
async def test_a_token_of_somebody_else_is_for_who_knows_it() -> None:
    async def by_bearer(bearer: str, host: str) -> Login:
        if bearer != "good":
            raise AuthenticationError("no")
        return Login(Principal("carol", host, ("readers",)))

    async with secured_kafka(by_bearer=by_bearer) as kafka:
        await kafka.broker.users.create_role("readers")
        await kafka.broker.grants.add([Grant(principal="readers", operation="describe", kind="topic", name="t")])
        side = await kafka.connect()
        assert (await side.log_in("", "good", "OAUTHBEARER")).error_code == 0
        named = MetadataRequest(topics=(MetadataRequestTopic(name="t"),), allow_auto_topic_creation=False)
        answer = await side.ask(METADATA_API, named, 12)
        assert answer.topics[0].error_code == 3, "it may know that there is no such topic"
        refused = await kafka.connect()
        assert (await refused.log_in("", "bad", "OAUTHBEARER")).error_code == FAILED
        assert await refused.is_closed()


@on_loop
async def test_versions_are_told_before_a_login_and_nothing_else_is() -> None:
    async with secured_kafka() as kafka:
        side = await kafka.connect()
        told = await side.ask(API_VERSIONS_API, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        assert {17, 36} <= {each.api_key for each in told.api_keys}
        await side.send(NEEDS_LOGIN)
        assert await side.is_closed()
        assert kafka.traffic.closed == {"unauthenticated": 1}


@on_loop
async def test_nothing_is_served_between_the_messages_of_an_exchange() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await kafka.connect()
        await side.handshake("SCRAM-SHA-256")
        await side.authenticate(ScramClient("alice", PASSWORD).first())
        await side.send(NEEDS_LOGIN)
        assert await side.is_closed()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@on_loop
async def test_a_wrong_password_and_an_unknown_name_are_one_answer_and_the_end(mechanism: str) -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        await kafka.broker.users.create("robot")
        answers = []
        for name, password in (("alice", "wrong"), ("nobody", PASSWORD), ("robot", PASSWORD)):
            side = await kafka.connect()
            answer = await side.log_in(name, password, mechanism)
            answers.append((answer.error_code, answer.error_message, answer.auth_bytes))
            assert await side.is_closed()
        assert answers[0][0] == FAILED
        assert len(set(answers)) == 1
        assert kafka.traffic.closed == {"login_failed": 3}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
@on_loop
async def test_a_failed_login_is_freed_without_the_garbage_collector(mechanism: str) -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await kafka.connect()
        await side.ask(API_VERSIONS_API, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        (connection,) = kafka.listener.registry.connections
        session = connection.client.session
        assert session is not None
        freed = weakref.ref(session)
        del connection, session
        gc.disable()
        try:
            assert (await side.log_in("alice", "wrong", mechanism)).error_code == FAILED
            await until(lambda: freed() is None)
        finally:
            gc.enable()


@on_loop
async def test_a_request_that_was_sent_along_with_a_failed_login_is_not_answered() -> None:
    async with secured_kafka() as kafka:
        side = await kafka.connect()
        await side.handshake("PLAIN")
        wrong = frame(SASL_AUTHENTICATE_API, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        await side.send(sized(wrong) + NEEDS_LOGIN + NEEDS_LOGIN)
        assert (await side.receive())[4:7] == b"\0" + FAILED.to_bytes(2)
        assert await side.is_closed()
        assert kafka.traffic.requests["Metadata"] == 0


@on_loop
async def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    async with secured_kafka(SecuritySettings(authentication="required")) as kafka:
        for mechanism in ("PLAIN", "OAUTHBEARER", "GSSAPI", ""):
            side = await kafka.connect()
            told = await side.handshake(mechanism)
            assert (told.error_code, told.mechanisms) == (UNSUPPORTED_MECHANISM, ("SCRAM-SHA-256", "SCRAM-SHA-512"))
            assert await side.is_closed()


@on_loop
async def test_messages_out_of_order_end_the_connection() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        first = await kafka.connect()
        assert (await first.authenticate(b"\0alice\0" + PASSWORD.encode())).error_code == ILLEGAL_STATE
        assert await first.is_closed()
        second = await kafka.connect()
        await second.handshake("SCRAM-SHA-256")
        assert (await second.handshake("SCRAM-SHA-256")).error_code == ILLEGAL_STATE
        assert await second.is_closed()
        third = await kafka.connect()
        await third.handshake("SCRAM-SHA-256")
        final = ScramClient("alice", PASSWORD).final(b"r=abc,s=AAAA,i=4096")
        assert (await third.authenticate(final)).error_code == FAILED
        assert await third.is_closed()
        fourth = await logged_in(kafka)
        assert (await fourth.authenticate(b"again")).error_code == ILLEGAL_STATE
        assert await fourth.is_closed()


@pytest.mark.parametrize(
    "message", [b"", b"alice", b"\0alice", b"\0a\0b\0c", b"bob\0alice\0" + PASSWORD.encode(), b"\0\xff\0x"]
)
@on_loop
async def test_other_messages_of_plain_are_refused(message: bytes) -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await kafka.connect()
        await side.handshake("PLAIN")
        assert (await side.authenticate(message)).error_code == FAILED
        assert await side.is_closed()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"\xff",
    ],
)
@on_loop
async def test_other_messages_of_oauthbearer_are_refused(message: bytes) -> None:
    async with secured_kafka() as kafka:
        side = await kafka.connect()
        await side.handshake("OAUTHBEARER")
        assert (await side.authenticate(message)).error_code == FAILED
        assert await side.is_closed()


@on_loop
async def test_a_large_request_is_taken_only_after_a_login() -> None:
    large = sized(frame(METADATA_API, 12, MetadataRequest(topics=(MetadataRequestTopic(name="x" * 20_000),) * 4)))
    async with secured_kafka(limits=Limits(unauthenticated_request_bytes=4096)) as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await kafka.connect()
        await side.send(large[:100])
        assert await side.is_closed()
        assert kafka.traffic.closed == {"frame_size": 1}
        side = await logged_in(kafka)
        await side.send(large)
        assert len(await side.receive()) > 100


@on_loop
async def test_a_large_message_of_sasl_is_refused_after_a_login_too() -> None:
    async with secured_kafka(limits=Limits(unauthenticated_request_bytes=4096)) as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await logged_in(kafka)
        await side.handshake("PLAIN")
        assert (await side.authenticate(b"\0alice\0" + b"x" * 5000)).error_code == FAILED
        assert await side.is_closed()


@on_loop
async def test_who_does_not_authenticate_in_time_is_closed() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        slow, quick = await kafka.connect(), await logged_in(kafka)
        await slow.handshake("SCRAM-SHA-256")
        kafka.inspect(29)
        assert kafka.traffic.open == 2
        kafka.inspect(31)
        assert await slow.is_closed()
        assert await is_served(quick)


@on_loop
async def test_the_connections_of_a_dropped_user_are_closed() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        await kafka.broker.users.create("bob", PASSWORD)
        side, other = await logged_in(kafka), await kafka.connect()
        await other.log_in("bob", PASSWORD)
        await kafka.broker.users.drop("alice")
        await kafka.broker.users.create("alice", PASSWORD)
        kafka.inspect()
        assert await side.is_closed()
        assert await is_served(other)
        assert kafka.traffic.closed == {"login_revoked": 1}


@on_loop
async def test_the_connections_of_a_dropped_token_are_closed() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        token = await kafka.broker.users.create_token("alice")
        side, other = await logged_in(kafka, "OAUTHBEARER", token.text), await logged_in(kafka)
        await kafka.broker.users.drop_token(token.token.id)
        kafka.inspect()
        assert await side.is_closed()
        assert await is_served(other)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
@on_loop
async def test_the_connections_of_who_gets_another_password_are_closed(mechanism: str) -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        token = await kafka.broker.users.create_token("alice")
        side, other = await logged_in(kafka, mechanism), await logged_in(kafka, "OAUTHBEARER", token.text)
        kafka.inspect()
        assert await is_served(side)
        await kafka.broker.users.set_password("alice", "another")
        kafka.inspect()
        assert await side.is_closed()
        assert await is_served(other)


@on_loop
async def test_a_password_that_changes_during_the_exchange_is_wrong() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side, client = await kafka.connect(), ScramClient("alice", PASSWORD)
        await side.handshake("SCRAM-SHA-256")
        first = await side.authenticate(client.first())
        await kafka.broker.users.set_password("alice", "another")
        assert (await side.authenticate(client.final(first.auth_bytes))).error_code == FAILED
        assert await side.is_closed()


def lasting(seconds: int) -> SecuritySettings:
    return msgspec.structs.replace(REQUIRED, session_seconds=seconds)


@on_loop
async def test_a_connection_goes_on_when_it_logs_in_again_in_time() -> None:
    clock = ManualClock()
    async with secured_kafka(lasting(100), clock=clock) as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await kafka.connect()
        assert (await side.log_in("alice", PASSWORD)).session_lifetime_ms == 100_000
        clock.advance(90_000)
        assert (await side.log_in("alice", PASSWORD, "PLAIN")).session_lifetime_ms == 100_000
        clock.advance(90_000)
        kafka.inspect()
        assert await is_served(side)


@on_loop
async def test_a_connection_that_does_not_log_in_again_is_closed_with_its_next_request() -> None:
    clock = ManualClock()
    async with secured_kafka(lasting(100), clock=clock) as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side, late = await logged_in(kafka), await logged_in(kafka)
        clock.advance(101_000)
        kafka.inspect()
        assert (await late.log_in("alice", PASSWORD)).error_code == 0
        assert await is_served(late)
        await side.send(NEEDS_LOGIN)
        assert await side.is_closed()
        assert kafka.traffic.closed == {"session_over": 1}


@on_loop
async def test_nobody_logs_in_again_as_somebody_else() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        await kafka.broker.users.create("bob", PASSWORD)
        side = await logged_in(kafka)
        assert (await side.log_in("bob", PASSWORD)).error_code == FAILED
        assert await side.is_closed()


@on_loop
async def test_a_failed_second_login_ends_the_first() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await logged_in(kafka)
        assert (await side.log_in("alice", "wrong")).error_code == FAILED
        assert await side.is_closed()


@on_loop
async def test_a_session_lasts_no_longer_than_its_token() -> None:
    clock = ManualClock()
    async with secured_kafka(lasting(3600), clock=clock) as kafka:
        await kafka.broker.users.create("alice")
        token = await kafka.broker.users.create_token("alice", clock.now_ms() + 5_000)
        side = await kafka.connect()
        assert (await side.log_in("", token.text, "OAUTHBEARER")).session_lifetime_ms == 5_000
        clock.advance(6_000)
        kafka.inspect()
        assert await side.is_closed()


@on_loop
async def test_old_clients_are_not_told_how_long_a_session_lasts() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.users.create("alice", PASSWORD)
        side = await kafka.connect()
        await side.handshake("PLAIN")
        message = f"\0alice\0{PASSWORD}".encode()
        answer = await side.ask(SASL_AUTHENTICATE_API, SaslAuthenticateRequest(auth_bytes=message), 0)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await is_served(side)


@on_loop
async def test_failures_of_an_address_are_answered_later_and_later() -> None:
    async with secured_kafka() as kafka:
        loop = asyncio.get_running_loop()
        seconds = []
        for _ in range(5):
            side = await kafka.connect()
            began = loop.time()
            assert (await side.log_in("alice", "wrong")).error_code == FAILED
            seconds.append(loop.time() - began)
        assert seconds[3] >= 0.25
        assert seconds[4] >= 0.5


@on_loop
async def test_failed_logins_are_told_to_the_audit_without_the_password() -> None:
    told: list[tuple[str, str, str]] = []
    async with secured_kafka() as kafka:
        kafka.broker.authenticator.on_failure = lambda *what: told.append(what)
        for mechanism in ("SCRAM-SHA-512", "PLAIN"):
            await (await kafka.connect()).log_in("alice", "my-secret", mechanism)
        assert [(name, host) for name, host, _ in told] == [("alice", "127.0.0.1")] * 2
        assert "my-secret" not in str(told)


@on_loop
async def test_requests_act_as_who_has_logged_in() -> None:
    async with secured_kafka() as kafka:
        await kafka.broker.topics.create("t", by_server=True)
        for name in ("alice", "bob"):
            await kafka.broker.users.create(name, PASSWORD)
        await kafka.broker.grants.add([Grant(principal="alice", operation="describe", kind="topic", name="t")])
        sides = {name: await kafka.connect() for name in ("alice", "bob")}
        for name, side in sides.items():
            await side.log_in(name, PASSWORD)
        seen: dict[str, Any] = {}
        for _ in range(2):
            for name, side in sides.items():
                answer = await side.ask(METADATA_API, MetadataRequest(topics=None), 12)
                seen.setdefault(name, []).append([topic.name for topic in answer.topics])
        assert seen == {"alice": [["t"], ["t"]], "bob": [[], []]}


@on_loop
async def test_the_owner_of_a_certificate_needs_no_sasl() -> None:
    settings = SecuritySettings(authentication="required", client_certificates="accepted")
    async with running_broker(security=settings) as broker:
        alice = await broker.users.create("alice")
        authentication = create_authentication(
            broker, settings, ManualClock(), Limits(), name_of_certificate=lambda certificate: str(certificate["CN"])
        )
        assert authentication is not None

        def session(certificate: dict[str, object] | None) -> KafkaSession:
            return KafkaSession(
                authentication, "192.0.2.1", is_encrypted=True, certificate=certificate, on_login=lambda login: None
            )

        shown = session({"CN": "alice"})
        assert shown.is_open
        assert shown.principal == Principal("alice", "192.0.2.1")
        assert shown.login == Login(Principal("alice", "192.0.2.1"), alice.id)
        assert shown.refusal(bytearray(8)) is None
        assert not session(None).is_open
        assert not session({}).is_open
        await broker.users.drop("alice")
        ended = shown.inspect(0)
        assert ended is not None
        assert ended.reason == "login_revoked"


@on_loop
async def test_certificates_do_not_count_unless_they_are_switched_on() -> None:
    async with running_broker(security=REQUIRED) as broker:
        authentication = create_authentication(
            broker, REQUIRED, ManualClock(), Limits(), name_of_certificate=lambda certificate: "alice"
        )
        assert authentication is not None
        session = KafkaSession(
            authentication, "192.0.2.1", is_encrypted=True, certificate={"CN": "alice"}, on_login=lambda login: None
        )
        assert not session.is_open


@on_loop
async def test_a_server_that_asks_for_no_authentication_says_so() -> None:
    async with running_asker() as asker:
        told = await asker.ask(SASL_HANDSHAKE_API, SaslHandshakeRequest(mechanism="PLAIN"))
        assert (told.error_code, told.mechanisms) == (ILLEGAL_STATE, ())
        answer = await asker.ask(SASL_AUTHENTICATE_API, SaslAuthenticateRequest(auth_bytes=b"\0a\0b"))
        assert answer.error_code == ILLEGAL_STATE
        assert create_authentication(asker.broker, REQUIRED, ManualClock(), Limits()) is None
