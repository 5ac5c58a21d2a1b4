"""An issuer of tokens: keys, the document that publishes them, and tokens that are right or wrong on purpose."""

import base64
import hashlib
import hmac
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example/realm"
AUDIENCE = "tailrace"
_CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SigningKeyPair:
    """A private key of the issuer, and how its public key is published."""

    def __init__(self, key_id: str | None, algorithm: str, *, rsa_bits: int = 2048, **more: Any) -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.private: Any
        encode: Any
        if algorithm == "EdDSA":
            self.private, encode = ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm.to_jwk
        elif algorithm in _CURVES:
            self.private, encode = ec.generate_private_key(_CURVES[algorithm]), ECAlgorithm.to_jwk
        else:
            self.private, encode = rsa.generate_private_key(65537, rsa_bits), RSAAlgorithm.to_jwk
        public = json.loads(encode(self.private.public_key()))
        self.jwk = {key: value for key, value in public.items() if key != "key_ops"} | more
        if key_id is not None:
            self.jwk["kid"] = key_id

    def sign(self, claims: dict[str, Any] | str, *, algorithm: str | None = None, **head: Any) -> str:
        """Return a token. Claims that are a text are signed as they are."""
        payload = claims if isinstance(claims, str) else json.dumps(claims)
        headers = ({} if self.key_id is None else {"kid": self.key_id}) | head
        return PyJWS().encode(payload.encode(), self.private, algorithm or self.algorithm, headers)


def document(*pairs: SigningKeyPair) -> bytes:
    return json.dumps({"keys": [pair.jwk for pair in pairs]}).encode()


def unsigned(head: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    return f"{segment(json.dumps(head).encode())}.{segment(json.dumps(claims).encode())}.{segment(signature)}"


def signed_with_a_password(secret: bytes, claims: dict[str, Any], **head: Any) -> str:
    """Return a token of HS256, whose password is anything, such as a public key."""
    begin = unsigned({"alg": "HS256", "typ": "JWT", **head}, claims).rpartition(".")[0]
    return f"{begin}.{segment(hmac.digest(secret, begin.encode(), hashlib.sha256))}"


class GivenKeys:
    """A document that a test exchanges. Counts how often it is read."""

    def __init__(self, content: bytes) -> None:
        self.name = "the issuer"
        self.content = content
        self.reads = 0

    def read(self) -> bytes:
        self.reads += 1
        if not self.content:
            raise OSError("no answer")
        return self.content
