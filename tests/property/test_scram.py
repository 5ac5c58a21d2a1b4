"""Whatever a client sends to SCRAM is answered or refused, and only the password lets it in."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import AuthenticationError
from tests.support.sasl import ScramClient
from tests.unit.kafka.test_scram import FINAL, FIRST, SERVER_FINAL, exchange

PIECES = st.sampled_from(
    (b"n,,", b"y,,", b"p=", b"n=", b"r=", b"c=", b",p=", b"m=", b"a=", b",", b"=", b"=2C", b"\0", b"biws", FIRST, FINAL)
)
MESSAGES = st.lists(PIECES | st.binary(max_size=20), max_size=12).map(b"".join)


@given(MESSAGES, MESSAGES)
def test_nothing_but_the_proof_is_answered_with_a_signature(first: bytes, final: bytes) -> None:
    server = exchange()
    try:
        server.first(first)
        answer = server.final(final)
    except AuthenticationError:
        return
    assert answer is None or (first, final, answer) == (FIRST, FINAL, SERVER_FINAL)


@given(st.integers(0, len(FINAL) - 3), st.integers(1, 255))
def test_a_changed_byte_proves_nothing(at: int, change: int) -> None:
    """But for the last one, which has bits that mean nothing."""
    server = exchange()
    server.first(FIRST)
    changed = bytearray(FINAL)
    changed[at] ^= change
    with suppress(AuthenticationError):
        assert server.final(bytes(changed)) is None


@given(st.text(min_size=1, max_size=40).filter(lambda text: text != "pencil"))
def test_another_password_proves_nothing(password: str) -> None:
    try:
        client = ScramClient("user", password)
    except UnicodeEncodeError:
        return
    server = exchange()
    assert server.final(client.final(server.first(client.first()))) is None
