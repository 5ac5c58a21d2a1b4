"""Tokens of an OIDC issuer count if they are right in every respect, and no forged one does."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm

from tailrace.broker.broker import Broker
from tailrace.broker.security.authentication import Login
from tailrace.broker.security.oidc import LEEWAY_SECONDS, OidcTokens
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.security.signing_keys import MAX_DOCUMENT_BYTES, parse_keys
from tailrace.model.errors import AuthenticationError, ConfigurationError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.security import ADMIN_ROLE
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import NEVER
from tests.support.clocks import ManualClock
from tests.support.oidc import (
    AUDIENCE,
    ISSUER,
    GivenKeys,
    SigningKeyPair,
    document,
    segment,
    signed_with_a_password,
    unsigned,
)

HOST = "192.0.2.7"
EC = SigningKeyPair("ec", "ES256")
RSA = SigningKeyPair("rsa", "RS256")
ED = SigningKeyPair("ed", "EdDSA")
EC384 = SigningKeyPair("ec384", "ES384")
STRANGER = SigningKeyPair("ec", "ES256")
"""A key of somebody else, with the name of the issuer's."""
PUBLISHED = document(EC, RSA, ED, EC384)


class Bench(NamedTuple):
    broker: Broker
    tokens: OidcTokens
    source: GivenKeys
    clock: ManualClock

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return claims that count, with these changed; `None` leaves one out."""
        now = self.clock.now_ms() // 1000
        whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300} | changed
        return {name: value for name, value in whole.items() if value is not None}

    async def refuses(self, text: str) -> bool:
        try:
            await self.tokens.by_bearer(text, HOST)
        except AuthenticationError as error:
            assert not text or text[:40] not in str(error)
            return True
        return False

    async def accepts(self, text: str) -> Login:
        return await self.tokens.by_bearer(text, HOST)


@asynccontextmanager
async def bench(content: bytes = PUBLISHED, **settings: Any) -> AsyncIterator[Bench]:
    clock = ManualClock()
    given: dict[str, Any] = {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_keys": "https://issuer.example/keys"}
    security = SecuritySettings(authentication="required", **(given | settings))
    broker = Broker(MemoryStore(clock, DEFAULT_LIMITS), clock, DEFAULT_LIMITS, NEVER, security)
    source = GivenKeys(content)
    broker.oidc.read_keys_from(source)
    await broker.start()
    try:
        yield Bench(broker, broker.oidc, source, clock)
    finally:
        await broker.close()


@pytest.mark.parametrize(
    ("pair", "algorithm"),
    [
        *((RSA, name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (EC, "ES256"),
        (EC384, "ES384"),
        (ED, "EdDSA"),
    ],
)
@on_loop
async def test_a_token_of_the_issuer_is_a_login(pair: SigningKeyPair, algorithm: str) -> None:
    async with bench() as at:
        claims = at.claims()
        login = await at.accepts(pair.sign(claims, algorithm=algorithm))
        assert (login.principal.name, login.principal.host, login.principal.roles) == ("alice", HOST, ())
        assert login.expires_ms == (claims["exp"] + LEEWAY_SECONDS) * 1000
        assert not login.principal.is_server


@on_loop
async def test_the_name_and_the_roles_are_those_of_the_claims_and_roles_that_do_not_exist_are_left_out() -> None:
    async with bench(oidc_name_claim="preferred_username", oidc_roles_claim="realm_access.roles") as at:
        await at.broker.users.create_role("readers")
        claims = at.claims(preferred_username="bob", realm_access={"roles": ["readers", "gone", 7, "readers"]})
        assert (await at.accepts(EC.sign(claims))).principal.roles == ("readers",)
        await at.broker.users.create_role("gone")
        assert (await at.accepts(EC.sign(claims))).principal.roles == ("readers", "gone")
        assert (await at.accepts(EC.sign(at.claims(preferred_username="carol")))).principal.roles == ()


@on_loop
async def test_roles_may_be_words_and_their_grants_count() -> None:
    async with bench(oidc_roles_claim="roles") as at:
        principal = (await at.accepts(EC.sign(at.claims(roles=f"{ADMIN_ROLE} other")))).principal
        assert principal.roles == (ADMIN_ROLE,)
        assert at.broker.permissions.is_admin(principal)
        assert not at.broker.permissions.is_admin((await at.accepts(EC.sign(at.claims()))).principal)


@on_loop
async def test_a_login_ends_with_its_user() -> None:
    async with bench() as at:
        user = await at.broker.users.create("alice")
        login = await at.accepts(EC.sign(at.claims()))
        assert login.user_id == user.id
        await at.broker.users.drop("alice")
        assert not at.broker.authenticator.is_current(login)


FORGERIES: dict[str, Callable[[Bench], str]] = {
    "nothing": lambda at: "",
    "no token": lambda at: "hello",
    "an API token": lambda at: "tlr_0123_abc",
    "two segments": lambda at: EC.sign(at.claims()).rpartition(".")[0],
    "four segments": lambda at: EC.sign(at.claims()) + ".x",
    "other letters": lambda at: EC.sign(at.claims()) + "é",
    "no algorithm": lambda at: unsigned({"alg": "none", "kid": "ec"}, at.claims()),
    "no algorithm in other letters": lambda at: unsigned({"alg": "nOnE", "kid": "ec"}, at.claims()),
    "an algorithm that is no text": lambda at: unsigned({"alg": ["ES256"], "kid": "ec"}, at.claims()),
    "a header without algorithm": lambda at: unsigned({"kid": "ec"}, at.claims()),
    "no signature": lambda at: EC.sign(at.claims()).rpartition(".")[0] + ".",
    "a signature of zeros": lambda at: unsigned({"alg": "ES256", "kid": "ec"}, at.claims(), bytes(64)),
    "another key's signature": lambda at: STRANGER.sign(at.claims()),
    "a key in the header": lambda at: STRANGER.sign(at.claims(), kid="own", jwk=STRANGER.jwk),
    "an address of keys in the header": lambda at: STRANGER.sign(at.claims(), kid="own", jku="https://evil.example/keys"),
    "a password that is the public key in PEM": lambda at: signed_with_a_password(
        RSA.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), at.claims(), kid="rsa"
    ),
    "a password that is the public key in DER": lambda at: signed_with_a_password(
        RSA.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), at.claims(), kid="rsa"
    ),
    "a password that is the published key": lambda at: signed_with_a_password(
        json.dumps(RSA.jwk).encode(), at.claims(), kid="rsa"
    ),
    "an empty password": lambda at: signed_with_a_password(b"", at.claims(), kid="rsa"),
    "the name of another type of key": lambda at: EC.sign(at.claims(), kid="rsa"),
    "an algorithm of another curve": lambda at: EC384.sign(at.claims(), kid="ec"),
    "an unknown key": lambda at: EC.sign(at.claims(), kid="gone"),
    "a path as name of the key": lambda at: signed_with_a_password(b"", at.claims(), kid="../../../../dev/null"),
    "SQL as name of the key": lambda at: EC.sign(at.claims(), kid="x' UNION SELECT 'k' --"),
    "a long name of the key": lambda at: EC.sign(at.claims(), kid="k" * 1000),
    "a number as name of the key": lambda at: unsigned({"alg": "ES256", "kid": 7}, at.claims(), bytes(64)),
    "a list as name of the key": lambda at: unsigned({"alg": "ES256", "kid": ["ec"]}, at.claims(), bytes(64)),
    "something critical": lambda at: EC.sign(at.claims(), crit=["exp"], exp=1),
    "another kind of token": lambda at: EC.sign(at.claims(), typ="logout+jwt"),
    "a kind that is no text": lambda at: EC.sign(at.claims(), typ=["JWT"]),
    "another issuer": lambda at: EC.sign(at.claims(iss="https://evil.example")),
    "an issuer with a slash more": lambda at: EC.sign(at.claims(iss=ISSUER + "/")),
    "a list of issuers": lambda at: EC.sign(at.claims(iss=[ISSUER])),
    "no issuer": lambda at: EC.sign(at.claims(iss=None)),
    "another audience": lambda at: EC.sign(at.claims(aud="other")),
    "other audiences": lambda at: EC.sign(at.claims(aud=["other", AUDIENCE + "x"])),
    "an audience that has the letters": lambda at: EC.sign(at.claims(aud={AUDIENCE: 1})),
    "no audience": lambda at: EC.sign(at.claims(aud=None)),
    "no name": lambda at: EC.sign(at.claims(sub=None)),
    "an empty name": lambda at: EC.sign(at.claims(sub="")),
    "a name that is no text": lambda at: EC.sign(at.claims(sub=["alice"])),
    "a name that can't be printed": lambda at: EC.sign(at.claims(sub="alice\nadmin")),
    "a long name": lambda at: EC.sign(at.claims(sub="a" * 256)),
    "the name of a role": lambda at: EC.sign(at.claims(sub=ADMIN_ROLE)),
    "the name of the server": lambda at: EC.sign(at.claims(sub="SERVER")),
    "the name of everybody": lambda at: EC.sign(at.claims(sub="*")),
    "no end": lambda at: EC.sign(at.claims(exp=None)),
    "an end that has passed": lambda at: EC.sign(at.claims(exp=at.clock.now_ms() // 1000 - LEEWAY_SECONDS)),
    "an end that is no number": lambda at: EC.sign(at.claims(exp="tomorrow")),
    "an end that is true": lambda at: EC.sign(at.claims(exp=True)),
    "an endless end": lambda at: EC.sign(json.dumps(at.claims(exp=7)).replace('"exp": 7', '"exp": 1e999')),
    "an end that is no JSON": lambda at: EC.sign(json.dumps(at.claims(exp=7)).replace('"exp": 7', '"exp": Infinity')),
    "a huge end": lambda at: EC.sign(json.dumps(at.claims(exp=7)).replace('"exp": 7', '"exp": 1' + "0" * 5000)),
    "a begin in the future": lambda at: EC.sign(at.claims(nbf=at.clock.now_ms() // 1000 + LEEWAY_SECONDS + 1)),
    "a begin that is no number": lambda at: EC.sign(at.claims(nbf="now")),
    "a claim that appears twice": lambda at: EC.sign('{"sub": "root", ' + json.dumps(at.claims())[1:]),
    "a claim within another that appears twice": lambda at: EC.sign('{"x": {"a": 1, "a": 2}, ' + json.dumps(at.claims())[1:]),
    "claims that are no object": lambda at: EC.sign(json.dumps([at.claims()])),
    "claims that are no JSON": lambda at: EC.sign("iss"),
    "claims that nest deeply": lambda at: EC.sign('{"x": ' + "[" * 5000 + "]" * 5000 + ", " + json.dumps(at.claims())[1:]),
    "a huge token": lambda at: EC.sign(at.claims(more="x" * DEFAULT_LIMITS.bearer_token_bytes)),
    "a header that nests deeply": lambda at: f"{segment(b'[' * 5000)}.{segment(b'{}')}.",
}


@pytest.mark.parametrize("forgery", FORGERIES)
@on_loop
async def test_a_forged_token_is_refused(forgery: str) -> None:
    async with bench() as at:
        assert await at.refuses(FORGERIES[forgery](at))
        assert (await at.accepts(EC.sign(at.claims()))).principal.name == "alice"


@on_loop
async def test_all_refusals_are_alike_and_counted() -> None:
    async with bench() as at:
        failed: list[tuple[str, str]] = []
        at.broker.authenticator.on_failure = lambda name, host, how: failed.append((host, how))
        said = set()
        for forge in (FORGERIES["another issuer"], FORGERIES["no algorithm"], FORGERIES["another key's signature"]):
            with pytest.raises(AuthenticationError) as refused:
                await at.accepts(forge(at))
            said.add(str(refused.value))
        assert len(said) == 1
        assert failed == [(HOST, "OIDC token")] * 3


@on_loop
async def test_a_token_that_counted_is_over_at_its_end() -> None:
    async with bench() as at:
        text = EC.sign(at.claims())
        login = await at.accepts(text)
        at.clock.advance(300_000)
        assert (await at.accepts(text)) == login, "the clocks may differ a little"
        assert at.broker.authenticator.is_current(login)
        at.clock.advance(LEEWAY_SECONDS * 1000)
        assert await at.refuses(text)
        assert not at.broker.authenticator.is_current(login)


@on_loop
async def test_audiences_may_be_a_list_and_a_begin_may_be_a_little_ahead() -> None:
    async with bench() as at:
        ahead = at.clock.now_ms() // 1000 + LEEWAY_SECONDS
        assert await at.accepts(EC.sign(at.claims(aud=["other", AUDIENCE], nbf=ahead), typ="at+jwt"))


@on_loop
async def test_a_token_without_name_of_its_key_counts_if_there_is_only_one() -> None:
    nameless = SigningKeyPair(None, "ES256")
    async with bench(document(nameless, RSA)) as at:
        assert await at.accepts(nameless.sign(at.claims()))
    async with bench(document(nameless, EC)) as at:
        assert await at.refuses(nameless.sign(at.claims()))


@on_loop
async def test_a_rotated_key_is_picked_up_and_a_withdrawn_one_no_longer_counts() -> None:
    new = SigningKeyPair("new", "ES256")
    async with bench() as at:
        old_token = EC.sign(at.claims())
        await at.accepts(old_token)
        at.source.content = document(new)
        at.clock.advance(30_000)
        assert (await at.accepts(new.sign(at.claims()))).principal.name == "alice"
        assert at.source.reads == 2
        assert await at.refuses(old_token)
        assert await at.refuses(EC.sign(at.claims(sub="bob")))


@on_loop
async def test_a_storm_of_unknown_keys_reads_the_document_once_in_half_a_minute() -> None:
    async with bench() as at:
        storm = [EC.sign(at.claims(), kid=f"unknown-{number}") for number in range(300)]
        assert all(await asyncio.gather(*map(at.refuses, storm)))
        assert at.source.reads == 1
        at.clock.advance(29_999)
        assert all(await asyncio.gather(*map(at.refuses, storm)))
        assert at.source.reads == 1
        at.clock.advance(1)
        assert all(await asyncio.gather(*map(at.refuses, storm)))
        assert at.source.reads == 2


@on_loop
async def test_a_token_that_could_not_count_anyhow_makes_nobody_read_the_keys() -> None:
    async with bench() as at:
        assert await at.refuses(STRANGER.sign(at.claims(iss="https://evil.example"), kid="unknown"))
        assert at.source.reads == 0


@on_loop
async def test_keys_count_on_while_the_issuer_does_not_answer_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async with bench() as at:
        await at.accepts(EC.sign(at.claims()))
        at.source.content = b""
        at.clock.advance(3_600_000)
        assert await at.accepts(EC.sign(at.claims()))
        at.clock.advance(24 * 3_600_000)
        with caplog.at_level(logging.WARNING):
            assert await at.refuses(EC.sign(at.claims()))
        assert "the keys of the OIDC issuer can't be read from the issuer: no answer" in caplog.text
        at.source.content = PUBLISHED
        at.clock.advance(30_000)
        assert await at.accepts(EC.sign(at.claims()))


@pytest.mark.parametrize("content", [b"", b"<html>secret</html>", b"[]", b'{"keys": 7}', b'{"keys": []}', b"[" * 10_000])
@on_loop
async def test_a_document_that_is_none_lets_nobody_in_and_is_not_in_the_log(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(content) as at:
        assert await at.refuses(EC.sign(at.claims()))
    assert "can't be read" in caplog.text
    assert "secret" not in caplog.text


def test_only_public_keys_for_signatures_that_are_strong_enough_are_taken() -> None:
    private = SigningKeyPair("private", "ES256")
    private.jwk = json.loads(ECAlgorithm.to_jwk(private.private)) | {"kid": "private"}
    others = (
        SigningKeyPair("encrypts", "ES256", use="enc"),
        SigningKeyPair("wraps", "ES256", key_ops=["wrapKey"]),
        SigningKeyPair("weak", "RS256", rsa_bits=1024),
        SigningKeyPair("another curve", "ES512"),
        SigningKeyPair("another algorithm", "RS256", alg="HS256"),
        SigningKeyPair("broken", "ES256", x="!"),
        SigningKeyPair("no text", "ES256", crv=7),
        private,
    )
    password = {"kty": "oct", "kid": "password", "k": "AAAA"}
    keys = json.loads(document(*others))["keys"] + [password, 7, EC.jwk, SigningKeyPair("one", "RS256", alg="PS256").jwk]
    assert [(key.key_id, sorted(key.algorithms)) for key in parse_keys(json.dumps({"keys": keys}).encode())] == [
        ("ec", ["ES256"]),
        ("one", ["PS256"]),
    ]


@on_loop
async def test_keys_are_read_from_a_file_of_a_bounded_size(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(PUBLISHED)
    clock = ManualClock()
    settings = SecuritySettings(oidc_issuer=ISSUER, oidc_audience=AUDIENCE, oidc_keys=str(file))
    broker = Broker(MemoryStore(clock, DEFAULT_LIMITS), clock, DEFAULT_LIMITS, NEVER, settings)
    await broker.start()
    at = Bench(broker, broker.oidc, GivenKeys(b""), clock)
    assert await at.accepts(EC.sign(at.claims()))
    file.write_bytes(document(STRANGER) + b" " * MAX_DOCUMENT_BYTES)
    clock.advance(30_000)
    assert await at.refuses(STRANGER.sign(at.claims()))
    await broker.close()


@on_loop
async def test_without_an_issuer_no_token_counts() -> None:
    clock = ManualClock()
    broker = Broker(MemoryStore(clock, DEFAULT_LIMITS), clock, DEFAULT_LIMITS, NEVER)
    await broker.start()
    assert not broker.oidc.is_on
    at = Bench(broker, broker.oidc, GivenKeys(b""), clock)
    assert await at.refuses(EC.sign(at.claims()))
    await broker.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"oidc_issuer": ISSUER}, "set security.oidc_audience and security.oidc_keys too"),
        ({"oidc_keys": "keys.json", "oidc_audience": AUDIENCE}, "set security.oidc_issuer too"),
        ({"oidc_issuer": ISSUER, "oidc_audience": "", "oidc_keys": "keys.json"}, "set security.oidc_audience too"),
        ({"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_keys": "http://issuer.example/keys"}, "begin with https://"),
        ({"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_keys": "file:///etc/passwd"}, "begin with https://"),
    ],
)
def test_settings_that_are_not_whole_are_refused(settings: dict[str, str], said: str) -> None:
    clock = ManualClock()
    with pytest.raises(ConfigurationError, match=said):
        Broker(MemoryStore(clock, DEFAULT_LIMITS), clock, DEFAULT_LIMITS, NEVER, SecuritySettings(**settings))  # type: ignore[arg-type]
