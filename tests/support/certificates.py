"""Authorities and certificates of a test, made by `cryptography`, with what can be wrong with them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Issued(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    """`Authority(folder)` makes one, whose certificate is `file`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self._key = generate_private_key(SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = (
            _builder(self._name, self._name, self._key, days=90)
            .add_extension(constraints, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = self._folder / "ca.pem"
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def server(self, file: str = "server", names: Sequence[str] = ("127.0.0.1", "localhost"), *, days: float = 60) -> Issued:
        """A certificate of a server. It has expired if `days` is negative."""
        others = x509.SubjectAlternativeName([_other_name(name) for name in names])
        return self._issue(file, [names[0]], others, ExtendedKeyUsageOID.SERVER_AUTH, days)

    def client(
        self, *common_names: str, file: str = "client", others: Sequence[x509.GeneralName] = (), days: float = 5
    ) -> Issued:
        """A certificate of a client."""
        extension = x509.SubjectAlternativeName(others) if others else None
        return self._issue(file, common_names, extension, ExtendedKeyUsageOID.CLIENT_AUTH, days)

    def _issue(
        self,
        file: str,
        common_names: Sequence[str],
        others: x509.SubjectAlternativeName | None,
        purpose: x509.ObjectIdentifier,
        days: float,
    ) -> Issued:
        key = generate_private_key(SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name) for common_name in common_names])
        builder = _builder(name, self._name, key, days).add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if others is not None:
            builder = builder.add_extension(others, critical=False)
        issued = Issued(self._folder / f"{file}.pem", self._folder / f"{file}-key.pem")
        issued.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        write_key(issued.key, key)
        return issued


def write_key(file: Path, key: EllipticCurvePrivateKey, password: bytes | None = None) -> None:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    file.chmod(0o600)


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
    )


def _other_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
