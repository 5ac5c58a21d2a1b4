"""SASL as a client speaks it, with the examples of the RFCs and a server of our own."""

import base64
import hashlib
import hmac

import pytest

from tailrace.shadow import sasl
from tailrace.shadow.failures import ShadowError

USER, PASSWORD = "user", "pencil"


def test_plain_is_one_message() -> None:
    exchange = sasl.authenticate("PLAIN", "anna", "secret")
    assert next(exchange) == b"\0anna\0secret"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_bytes", lambda _: base64.b64decode("rOprNGfwEbeRWgbNEkqO"))
    exchange = sasl.authenticate("SCRAM-SHA-256", USER, PASSWORD)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.send(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


class ScramServer:
    """Answers as a broker does that knows the password."""

    def __init__(self, algorithm: str, password: str = PASSWORD, rounds: int = 4_096) -> None:
        self._algorithm = algorithm
        self._salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b"salt", rounds)
        self._rounds = rounds

    def challenge(self, first: bytes) -> bytes:
        self._first = first.removeprefix(b"n,,")
        nonce = first.rpartition(b"r=")[2]
        self._challenge = b"r=%bmore,s=%b,i=%d" % (nonce, base64.b64encode(b"salt"), self._rounds)
        return self._challenge

    def final(self, last: bytes) -> bytes:
        unsigned, _, proof = last.partition(b",p=")
        signed = b",".join((self._first, self._challenge, unsigned))
        key = hmac.digest(self._salted, b"Client Key", self._algorithm)
        signature = hmac.digest(hashlib.new(self._algorithm, key).digest(), signed, self._algorithm)
        assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(self._salted, b"Server Key", self._algorithm)
        return b"v=" + base64.b64encode(hmac.digest(server_key, signed, self._algorithm))


@pytest.mark.parametrize(("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
@pytest.mark.parametrize("user", ["anna", "a=b,c"])
def test_a_server_that_knows_the_password_is_believed(mechanism: str, algorithm: str, user: str) -> None:
    server = ScramServer(algorithm)
    exchange = sasl.authenticate(mechanism, user, PASSWORD)
    last = exchange.send(server.challenge(next(exchange)))
    with pytest.raises(StopIteration):
        exchange.send(server.final(last))


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    server = ScramServer("sha256")
    exchange = sasl.authenticate("SCRAM-SHA-256", USER, PASSWORD)
    exchange.send(server.challenge(next(exchange)))
    with pytest.raises(ShadowError, match="could not prove that it knows the password"):
        exchange.send(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"e=unknown-user", "unknown-user"),
        (b"nonsense", "can't be understood"),
        (b"r=anothers,s=c2FsdA==,i=4096", "can't be understood"),
        (b"r=%b,s=c2FsdA==,i=1", "can't be understood"),
        (b"r=%b,s=c2FsdA==,i=999999999", "can't be understood"),
    ],
)
def test_a_challenge_that_is_wrong_is_refused(challenge: bytes, why: str) -> None:
    exchange = sasl.authenticate("SCRAM-SHA-256", USER, PASSWORD)
    nonce = next(exchange).rpartition(b"r=")[2]
    with pytest.raises(ShadowError, match=why):
        exchange.send(challenge % nonce if b"%b" in challenge else challenge)
