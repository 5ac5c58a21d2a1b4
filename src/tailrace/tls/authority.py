"""A certificate authority for a trial: its files in a folder, and the certificates that it issues for servers and clients.

It has no list of revoked certificates, and its private key lies beside them. For more than a trial use the authority that your
organisation has.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.model.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY_DAYS = 3650
_DAYS = 397
"""What browsers accept at most for a server."""
_EARLIER = timedelta(minutes=10)
"""How long before now a certificate begins to be valid: the clocks of two machines differ."""
_LONGEST_NAME = 64
"""Characters of a common name, as X.509 has it."""


class CertificateAuthority:
    """The authority in a folder. `create` makes it, `open` finds it there."""

    def __init__(self, folder: Path, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey") -> None:
        self.folder = folder
        self._certificate = certificate
        self._key = key

    @property
    def file(self) -> Path:
        """The certificate that clients and servers are to trust."""
        return self.folder / "ca.pem"

    @classmethod
    def create(cls, folder: Path) -> "CertificateAuthority":
        """Make an authority in a folder, in place of the one that it had."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = _new_key()
        name = _name("Tailrace trial authority")
        public = key.public_key()
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + timedelta(days=_AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, certificate, key)
        write_private(folder / "ca-key.pem", _key_pem(key))
        write_private(authority.file, _certificate_pem(certificate))
        return authority

    @classmethod
    def open(cls, folder: Path) -> "CertificateAuthority":
        """Read the authority of a folder. Raises `ConfigurationError` if it has none."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            key = load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{folder} has no certificate authority of `tailrace init`: {getattr(error, 'strerror', None) or error}"
            ) from error
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ConfigurationError(f"{folder / 'ca-key.pem'} was not made by `tailrace init`")
        return cls(folder, certificate, key)

    def issue_for_server(self, names: Sequence[str]) -> tuple[Path, Path]:
        """Issue a certificate for a server with these names and addresses. Return its file and that of its key."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        others = x509.SubjectAlternativeName([_other_name(name) for name in names])
        return self._issue("server", names[0], others, ExtendedKeyUsageOID.SERVER_AUTH)

    def issue_for_client(self, name: str) -> tuple[Path, Path]:
        """Issue a certificate for a user, whose name is its common name. Return its file and that of its key."""
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if not name.isprintable() or not name.strip() or len(name) > _LONGEST_NAME:
            raise ConfigurationError(
                f"{name[:_LONGEST_NAME]!r} can't be the name in a certificate; use 1 to {_LONGEST_NAME} printable characters"
            )
        if "/" in name or name.startswith(".") or name in ("ca", "server"):
            raise ConfigurationError(f"{name!r} can't be the name of a file in {self.folder}; use another name")
        return self._issue(name, name, None, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self, file: str, common_name: str, others: "x509.SubjectAlternativeName | None", purpose: "x509.ObjectIdentifier"
    ) -> tuple[Path, Path]:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        key = _new_key()
        now = datetime.now(UTC)
        authority_key = self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False)
        )
        if others is not None:
            builder = builder.add_extension(others, critical=False)
        certificate_file, key_file = self.folder / f"{file}.pem", self.folder / f"{file}-key.pem"
        write_private(key_file, _key_pem(key))
        write_private(certificate_file, _certificate_pem(builder.sign(self._key, hashes.SHA256())))
        return certificate_file, key_file


def make_nameless_certificate(file: Path) -> str:
    """Write a certificate with its key that names nobody, and return the certificate as PEM. It is its own authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = _new_key()
    # Without a common name: who shows it has to log in besides.
    nobody = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tailrace")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(nobody)
        .issuer_name(nobody)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = _certificate_pem(certificate)
    write_private(file, _key_pem(key) + pem)
    return pem.decode()


def check_names(names: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a name or address that can't stand in the certificate of a server."""
    for name in names:
        _other_name(name)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    return generate_private_key(SECP256R1())


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_LONGEST_NAME])])


def _other_name(text: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no name of a machine: {error}. Write it in ASCII, as DNS has it") from error


def _key_usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate_pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def write_private(file: Path, content: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only from the first moment."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as writer:
        writer.write(content)
        writer.flush()
        os.fsync(writer.fileno())
    unfinished.replace(file)
