"""Whatever is sent as a token of an issuer, it is a login only if nothing of a right one was changed, and else one error."""

import asyncio
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import AuthenticationError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.memory import MemoryStore
from tests.support.brokers import NEVER
from tests.support.clocks import ManualClock
from tests.support.oidc import AUDIENCE, ISSUER, GivenKeys, SigningKeyPair, document, segment

KEY = SigningKeyPair("ec", "ES256")
CLOCK = ManualClock()
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": CLOCK.now_ms() // 1000 + 300}
TOKEN = KEY.sign(CLAIMS)
SECURITY = SecuritySettings(
    authentication="required", oidc_issuer=ISSUER, oidc_audience=AUDIENCE, oidc_keys="https://issuer.example/keys"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HEAD = st.dictionaries(st.sampled_from(("alg", "kid", "typ", "crit", "b64", "jwk", "x")), JSON, max_size=5)


def names_in(texts: list[str]) -> list[str | None]:
    """Return the name that each text logs in, at a server of its own."""

    async def ask() -> list[str | None]:
        broker = Broker(MemoryStore(CLOCK, DEFAULT_LIMITS), CLOCK, DEFAULT_LIMITS, NEVER, SECURITY)
        broker.oidc.read_keys_from(GivenKeys(document(KEY)))
        found: list[str | None] = []
        for text in texts:
            try:
                found.append((await broker.oidc.by_bearer(text, "192.0.2.1")).principal.name)
            except AuthenticationError:
                found.append(None)
        await broker.oidc.close()
        broker.threads.close()
        return found

    return asyncio.run(ask())


@settings(max_examples=150)
@given(
    st.lists(st.text(alphabet=st.characters(), max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{0,40}(\.[A-Za-z0-9_-]{0,40}){2}"))
)
@example(["\ud800.\ud800.\ud800", "..", "eyJ9..", "\0.\0.\0"])
def test_no_text_is_anything_but_refused(texts: list[str]) -> None:
    assert names_in(texts) == [None] * len(texts)


@settings(max_examples=150)
@given(st.integers(0, len(TOKEN) - 1), st.sampled_from("ABCabc012-_.="), st.sampled_from(("replace", "insert", "delete")))
def test_a_token_of_which_a_sign_was_changed_is_refused(place: int, sign: str, how: str) -> None:
    rest = TOKEN[place + (how != "insert") :]
    changed = TOKEN[:place] + ("" if how == "delete" else sign) + rest
    # Padding says nothing, and is accepted where it is right.
    if changed.replace("=", "") != TOKEN:
        assert names_in([TOKEN, changed]) == ["alice", None]


@settings(max_examples=150)
@given(HEAD, st.dictionaries(st.sampled_from((*CLAIMS, "nbf", "x")), JSON, max_size=5), st.binary(max_size=70))
def test_heads_and_claims_of_any_kind_are_refused_without_a_signature(
    head: dict[str, Any], claims: dict[str, Any], signature: bytes
) -> None:
    head = {"alg": "ES256", "kid": "ec"} | head
    text = f"{segment(json.dumps(head).encode())}.{segment(json.dumps(CLAIMS | claims).encode())}.{segment(signature)}"
    assert names_in([text]) == [None]


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from((*CLAIMS, "nbf")), JSON, min_size=1, max_size=3))
def test_signed_claims_of_any_kind_are_a_login_only_if_they_are_right(claims: dict[str, Any]) -> None:
    changed = CLAIMS | claims
    try:
        text = KEY.sign(changed)
    except (ValueError, UnicodeEncodeError):
        return
    (name,) = names_in([text])
    if name is not None:
        assert changed["iss"] == ISSUER
        assert changed["aud"] == AUDIENCE or AUDIENCE in changed["aud"]
        assert changed["sub"] == name
        assert isinstance(changed["exp"], int | float)
        assert changed["exp"] > CLOCK.now_ms() / 1000 - 31
