"""Whatever a client sends in a handshake of SASL is an answer without a login, or an error of ours: never a fault."""

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.kafka.apis import create_authentication
from tailrace.kafka.sasl import KafkaSession
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.sasl import REQUIRED

HANDSHAKES = 200
NUMBERS = itertools.count()
MECHANISMS = st.sampled_from(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "", "plain", "GSSAPI", "\0"))
PIECES = st.sampled_from(
    (
        b"alice",
        b"\0",
        b"secre",
        b"n,,",
        b"y,,",
        b"p=",
        b"n=alice",
        b"r=",
        b",",
        b"\x01",
        b"auth=",
        b"Bearer ",
        b"tlr_",
        b"eyJ",
        b".",
    )
)
MESSAGES = st.lists(st.lists(PIECES | st.binary(max_size=20), max_size=12).map(b"".join) | st.just(bytes(70_000)), max_size=3)


@settings(max_examples=HANDSHAKES)
@given(MECHANISMS, MESSAGES, st.booleans())
def test_no_handshake_is_a_fault_or_a_login_without_the_secret(
    mechanism: str, messages: list[bytes], is_encrypted: bool
) -> None:
    async def run() -> None:
        async with running_broker(security=REQUIRED) as broker:
            await broker.users.set_verifier("alice", broker.authenticator.verifier("alice", "SCRAM-SHA-256")[1])
            authentication = create_authentication(broker, REQUIRED, ManualClock(), Limits())
            assert authentication is not None
            session = KafkaSession(
                authentication, f"192.0.2.{next(NUMBERS)}", is_encrypted=is_encrypted, on_login=lambda login: None
            )
            try:
                session.handshake(mechanism)
                for message in messages:
                    await session.authenticate(message)
            except TailraceError:
                assert session.failure
            assert session.login is None
            assert not session.is_open

    asyncio.run(run())
