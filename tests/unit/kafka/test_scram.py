"""The server's side of SCRAM, held against the vectors of the RFCs and the clients of other projects."""

import base64
import hashlib
from collections.abc import Callable

import pytest
from aiokafka.conn import ScramAuthenticator
from kafka.net.sasl.scram import ScramClient as KafkaPythonClient

from tailrace.broker.security.passwords import MECHANISMS, decoy, verifier_of
from tailrace.kafka.scram import ScramExchange
from tailrace.model.errors import AuthenticationError
from tailrace.model.security import ScramVerifier, User
from tests.support.sasl import ScramClient

MECHANISM = "SCRAM-SHA-256"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""The exchange of RFC 7677, section 3."""


def verifier(mechanism: str = MECHANISM, password: bytes = b"pencil", iterations: int = 4096) -> ScramVerifier:
    salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password, SALT, iterations)
    return verifier_of(mechanism, salted, SALT, iterations)


def exchange(mechanism: str = MECHANISM, name: str = "user", nonce: str = SERVER_NONCE) -> ScramExchange:
    """Return an exchange of a server that has one user, whose password is `pencil`."""

    def find(asked: str, wanted: str) -> tuple[User | None, ScramVerifier]:
        if asked == name:
            return User(id=1, name=name), verifier(wanted)
        return None, decoy(wanted, asked, b"key")

    return ScramExchange(mechanism, find, nonce)


def test_the_exchange_of_rfc_7677() -> None:
    server = exchange()
    assert server.first(FIRST) == SERVER_FIRST
    assert server.final(FINAL) == SERVER_FINAL
    assert server.user is not None


Client = tuple[Callable[[], bytes], Callable[[bytes], bytes], Callable[[bytes], None]]
"""The first message, the answer to the server's first message, and the check of its last one."""


def kafka_python(mechanism: str, password: str) -> Client:
    client = KafkaPythonClient("user", password, mechanism)

    def final(server_first: bytes) -> bytes:
        client.process_server_first_message(server_first)
        return bytes(client.final_message())

    return lambda: bytes(client.first_message()), final, client.process_server_final_message


def aiokafka(mechanism: str, password: str) -> Client:
    client = ScramAuthenticator(loop=None, sasl_plain_username="user", sasl_plain_password=password, sasl_mechanism=mechanism)

    def final(server_first: bytes) -> bytes:
        client.process_server_first_message(server_first.decode())
        return client.final_message().encode()

    return lambda: client.first_message().encode(), final, lambda last: client.process_server_final_message(last.decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [kafka_python, aiokafka])
def test_clients_of_other_projects_and_the_server_convince_each_other(
    mechanism: str, client: Callable[[str, str], Client]
) -> None:
    server = exchange(mechanism)
    first, final, check = client(mechanism, "pencil")
    answer = server.final(final(server.first(first())))
    assert answer is not None
    check(answer)
    server = exchange(mechanism)
    first, final, _ = client(mechanism, "Pencil")
    assert server.final(final(server.first(first()))) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_proves_nothing(mechanism: str) -> None:
    server, client = exchange(mechanism), ScramClient("user", "pencils", mechanism)
    assert server.final(client.final(server.first(client.first()))) is None


def test_an_unknown_user_is_answered_like_one_that_exists() -> None:
    known, unknown = exchange(name="user"), exchange(name="user")
    first, other = (each.first(ScramClient(name, "x").first()) for each, name in ((known, "user"), (unknown, "nobody")))
    parts, others = first.split(b","), other.split(b",")
    assert [part[:2] for part in parts] == [part[:2] for part in others] == [b"r=", b"s=", b"i="]
    assert len(base64.b64decode(parts[1][2:])) == len(base64.b64decode(others[1][2:]))
    again = exchange().first(ScramClient("nobody", "x").first())
    assert again == other, "a salt that changes tells that nobody is there"
    assert unknown.final(ScramClient("nobody", "x").final(other)) is None


def test_the_proof_of_another_exchange_is_refused() -> None:
    listened = exchange()
    client = ScramClient("user", "pencil")
    proof = client.final(listened.first(client.first()))
    assert listened.final(proof) is not None
    replayed = exchange(nonce="another")
    replayed.first(FIRST)
    with pytest.raises(AuthenticationError, match="another exchange"):
        replayed.final(proof)


def test_librdkafka_before_2_6_1_may_send_its_nonce_twice() -> None:
    server, client = exchange(), ScramClient("user", "pencil", nonce=CLIENT_NONCE, nonce_before=CLIENT_NONCE)
    answer = server.final(client.final(server.first(client.first())))
    assert answer is not None
    assert client.accepts(answer)
    for before in ("x", CLIENT_NONCE * 2, SERVER_NONCE):
        server, client = exchange(), ScramClient("user", "pencil", nonce=CLIENT_NONCE, nonce_before=before)
        with pytest.raises(AuthenticationError, match="another exchange"):
            server.final(client.final(server.first(client.first())))


def test_a_proof_with_the_nonce_of_this_exchange_put_in_is_no_proof() -> None:
    client = ScramClient("user", "pencil")
    proof = client.final(exchange().first(client.first()))
    replayed = exchange(nonce="another")
    replayed.first(FIRST)
    assert replayed.final(proof.replace(SERVER_NONCE.encode(), b"another")) is None


def test_a_client_may_say_that_it_could_bind_the_channel() -> None:
    server, client = exchange(), ScramClient("user", "pencil", header="y,,")
    assert server.final(client.final(server.first(client.first()))) is not None


def test_somebody_who_hides_that_the_client_could_bind_the_channel_is_found_out() -> None:
    server, client = exchange(), ScramClient("user", "pencil", header="n,,", final_header="y,,")
    with pytest.raises(AuthenticationError, match="changed"):
        server.final(client.final(server.first(client.first())))


def test_a_client_that_demands_channel_binding_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="channel binding"):
        exchange().first(b"p=tls-unique,,n=user,r=abc")


def test_nobody_acts_as_somebody_else() -> None:
    with pytest.raises(AuthenticationError, match="another user"):
        exchange().first(b"n,a=admin,n=user,r=abc")
    server, client = exchange(), ScramClient("user", "pencil", header="n,a=user,")
    assert server.final(client.final(server.first(client.first()))) is not None


def test_a_name_with_signs_that_are_escaped() -> None:
    server, client = exchange(name="a,b=c"), ScramClient("a=2Cb=3Dc", "pencil")
    assert server.final(client.final(server.first(client.first()))) is not None
    assert server.name == "a,b=c"


def test_extensions_that_are_not_mandatory_are_ignored() -> None:
    server, client = exchange(), ScramClient("user", "pencil", nonce="abc,tokenauth=true")
    final = client.final(server.first(client.first()))
    assert server.final(final) is not None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=a b",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=user,r=abc,m=must",
        b"x,,n=user,r=abc",
        b"n,,n=\xff,r=abc",
        b"GET / HTTP/1.1",
    ],
)
def test_other_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError, match="not one that SCRAM has"):
        exchange().first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FINAL[:-1],
        FINAL.replace(b"c=biws,", b""),
        FINAL.replace(b"biws", b"%%%%"),
        FINAL.replace(b"biws", b"biw"),
        FINAL.partition(b",p=")[0],
        FINAL + b",x=y",
        FINAL.partition(b",p=")[0] + b",p=AAAA",
    ],
)
def test_other_final_messages_are_refused(message: bytes) -> None:
    server = exchange()
    server.first(FIRST)
    with pytest.raises(AuthenticationError, match="not one that SCRAM has"):
        server.final(message)


def test_a_final_message_before_the_first_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="not one that SCRAM has"):
        exchange().final(FINAL)


def test_a_long_hostile_message_is_refused_at_once() -> None:
    server = exchange()
    server.first(FIRST)
    for message in (b"c=biws,r=x" + b",p=a" * 15_000 + b"!", b"c=" + b"=" * 60_000, b"n,," * 20_000):
        with pytest.raises(AuthenticationError):
            server.final(message)
        with pytest.raises(AuthenticationError):
            exchange().first(message)
