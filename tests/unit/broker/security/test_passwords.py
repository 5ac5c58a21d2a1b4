"""The verifiers of passwords: those of RFC 5802, and nothing from which a password follows."""

import base64

import pytest

from tailrace.broker.security.passwords import (
    DEFAULT_ITERATIONS,
    MECHANISMS,
    decoy,
    make_verifiers,
    matches,
    normalized,
    verifier_of,
)
from tailrace.model.errors import UnacceptableCredentialError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.security import ScramVerifier


def test_a_verifier_is_made_for_each_mechanism_with_a_salt_of_its_own() -> None:
    made = [*make_verifiers(b"pencil"), *make_verifiers(b"pencil")]
    assert [one.mechanism for one in made] == [*MECHANISMS, *MECHANISMS]
    assert len({one.salt for one in made}) == len(made)
    assert all(one.iterations == DEFAULT_ITERATIONS for one in made)


def test_only_the_password_matches_its_verifiers() -> None:
    for verifier in make_verifiers(b"pencil"):
        assert matches(verifier, b"pencil")
        assert not matches(verifier, b"pencils")
        assert not matches(verifier, b"")


def test_keys_are_those_of_rfc_7677() -> None:
    salted = "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d"
    verifier = verifier_of("SCRAM-SHA-256", bytes.fromhex(salted), base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert matches(verifier, b"pencil")
    assert base64.b64encode(verifier.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


@pytest.mark.parametrize("iterations", [0, 4_095, 16_385])
def test_iterations_outside_of_kafkas_bounds_are_refused(iterations: int) -> None:
    with pytest.raises(UnacceptableCredentialError, match="iterations"):
        verifier_of("SCRAM-SHA-256", bytes(32), b"salt", iterations)


@pytest.mark.parametrize(("salted", "salt"), [(bytes(31), b"salt"), (bytes(32), b""), (bytes(32), bytes(257))])
def test_salts_and_salted_passwords_of_another_size_are_refused(salted: bytes, salt: bytes) -> None:
    with pytest.raises(UnacceptableCredentialError, match="no value of SCRAM-SHA-256"):
        verifier_of("SCRAM-SHA-256", salted, salt, 4_096)


def test_characters_that_look_alike_are_one_password() -> None:
    assert normalized("ﬁne\u00a0Å", DEFAULT_LIMITS) == normalized("fine A\u030a", DEFAULT_LIMITS)


def test_empty_and_long_passwords_are_refused() -> None:
    with pytest.raises(UnacceptableCredentialError, match="empty"):
        normalized("", DEFAULT_LIMITS)
    with pytest.raises(UnacceptableCredentialError, match="password_bytes"):
        normalized("x" * (DEFAULT_LIMITS.password_bytes + 1), DEFAULT_LIMITS)


def test_a_decoy_is_the_same_for_a_name_as_that_of_a_user_would_be_and_matches_nothing() -> None:
    first, second = (decoy("SCRAM-SHA-256", "nobody", b"key") for _ in range(2))
    (real, _) = make_verifiers(b"x")
    assert (first.salt, first.iterations) == (second.salt, second.iterations)
    assert decoy("SCRAM-SHA-256", "another", b"key").salt != first.salt
    assert decoy("SCRAM-SHA-256", "nobody", b"other key").salt != first.salt
    assert _shape(first) == _shape(real)
    assert not matches(first, b"")


def _shape(verifier: ScramVerifier) -> tuple[int, ...]:
    return verifier.iterations, len(verifier.salt), len(verifier.stored_key), len(verifier.server_key)
