"""The certificate of a server: what is accepted, what is rejected with which words, and what happens when the files change."""

import logging
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from tailrace.broker.security.settings import SecuritySettings
from tailrace.model.errors import ConfigurationError
from tailrace.tls.certificate import ServerCertificate, load_context
from tailrace.tls.names import name_of_certificate
from tests.support.certificates import Authority, Issued, write_key


def settings(issued: Issued, **others: Any) -> SecuritySettings:
    return SecuritySettings(tls_certificate=str(issued.certificate), tls_key=str(issued.key), **others)


def rejected(security: SecuritySettings) -> str:
    with pytest.raises(ConfigurationError) as refusal:
        load_context(security)
    return str(refusal.value)


def replace(issued: Issued, by: Issued) -> None:
    """Put other files in the place of these, as whoever renews certificates does."""
    for here, there in zip(issued, by, strict=True):
        renewed = here.with_suffix(".new")
        shutil.copy(there, renewed)
        renewed.replace(here)


def serial_of(certificate: ServerCertificate, authority: Authority) -> str:
    """The serial number that a client sees."""
    client = ssl.create_default_context(cafile=str(authority.file))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    answering = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    while True:
        try:
            asking.do_handshake()
        except ssl.SSLWantReadError:
            try:
                answering.do_handshake()
            except ssl.SSLWantReadError:
                continue
        else:
            return str((asking.getpeercert() or {})["serialNumber"])


def test_old_versions_and_ciphers_without_forward_secrecy_are_not_spoken(tmp_path: Path) -> None:
    context, ends_at = load_context(settings(Authority(tmp_path).server()))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert {cipher["kea"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"} == {"kx-ecdhe"}
    assert ends_at > 0


def test_the_key_may_be_in_the_file_of_the_certificate(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    both = tmp_path / "both.pem"
    both.write_bytes(issued.key.read_bytes() + issued.certificate.read_bytes())
    load_context(SecuritySettings(tls_certificate=str(both)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    issued.key.unlink()
    assert f"can't read {issued.key} of [security]: No such file" in rejected(settings(issued))


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = authority.server("first"), authority.server("second")
    mixed = Issued(first.certificate, second.key)
    assert f"the private key in {second.key} does not belong to the first certificate in" in rejected(settings(mixed))


def test_a_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    issued.certificate.write_text("nothing")
    assert f"{issued.certificate} and {issued.key} have no certificate with its private key" in rejected(settings(issued))


def test_a_key_with_a_password_is_not_asked_for_it(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    write_key(issued.key, generate_private_key(SECP256R1()), b"secret")
    assert "has a password; write it to a file without one" in rejected(settings(issued))


def test_a_file_of_authorities_without_any_is_named(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    security = settings(Authority(tmp_path).server(), client_certificates="required", client_ca=str(nothing))
    assert f"{nothing} (client_ca) has no certificate as PEM" in rejected(security)


def test_a_certificate_for_clients_is_none_for_a_server(tmp_path: Path) -> None:
    assert "clients would reject the certificate" in rejected(settings(Authority(tmp_path).client("alice")))


def test_sessions_are_not_resumed_where_clients_show_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context, _ = load_context(
        settings(authority.server(), client_certificates="required", client_ca=str(authority.file), authentication="required")
    )
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET


def test_a_handshake_makes_no_tickets(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context, _ = load_context(settings(authority.server()))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cafile=str(authority.file))
    asking = trust.wrap_bio(to_client, to_server, server_hostname="localhost")
    answering = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, answering):
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
    asking.do_handshake()
    answering.do_handshake()
    assert answering.version() == "TLSv1.3"
    # What a ticket would be is the first that a client reads after its handshake.
    assert to_client.pending == 0


def test_a_replaced_certificate_is_used_from_the_next_handshake_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, renewed = authority.server("first"), authority.server("second")
    certificate = ServerCertificate(settings(issued))
    before = serial_of(certificate, authority)
    assert not certificate.reload_if_changed()
    replace(issued, renewed)
    assert certificate.reload_if_changed()
    assert serial_of(certificate, authority) != before
    assert not certificate.reload_if_changed()


@pytest.mark.parametrize("what", ["broken", "expired", "of another key", "missing"])
def test_a_bad_new_file_is_reported_once_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    authority = Authority(tmp_path)
    issued = authority.server("first")
    certificate = ServerCertificate(settings(issued))
    before = serial_of(certificate, authority)
    if what == "broken":
        issued.certificate.write_text("-----BEGIN CERTIFICATE-----\nbroken")
    elif what == "expired":
        replace(issued, authority.server("second", days=-1))
    elif what == "of another key":
        shutil.copy(authority.server("second").certificate, issued.certificate)
    else:
        issued.certificate.unlink()
    with caplog.at_level(logging.ERROR):
        assert not certificate.reload_if_changed()
        assert not certificate.reload_if_changed()
    assert len([record for record in caplog.records if "the one before stays in use" in record.message]) == 1
    assert serial_of(certificate, authority) == before
    replace(issued, authority.server("third"))
    assert certificate.reload_if_changed()


def test_a_server_starts_with_an_expired_certificate(tmp_path: Path) -> None:
    """Clients that do not look at the date are better off than with no server at all."""
    _, ends_at = load_context(settings(Authority(tmp_path).server(days=-1)))
    assert ends_at == 0.0


def test_a_file_with_the_same_time_is_read_again_if_it_is_another(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, renewed = authority.server("first"), authority.server("second")
    certificate = ServerCertificate(settings(issued))
    stamp = issued.certificate.stat().st_mtime_ns
    replace(issued, renewed)
    os.utime(issued.certificate, ns=(stamp, stamp))
    assert certificate.reload_if_changed()


def shown(issued: Issued) -> dict[str, Any]:
    """A certificate as `getpeercert` describes it."""
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    names: list[tuple[str, str]] = []
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        others = x509.SubjectAlternativeName([])
    kinds = {x509.DNSName: "DNS", x509.RFC822Name: "email", x509.UniformResourceIdentifier: "URI"}
    names = [(kinds[type(other)], str(other.value)) for other in others]
    return {
        "subject": tuple((("commonName", str(part.value)),) for part in certificate.subject),
        "subjectAltName": tuple(names),
    }


ALICE = (x509.DNSName("alice.example"), x509.RFC822Name("alice@example"), x509.UniformResourceIdentifier("spiffe://a/alice"))


@pytest.mark.parametrize(
    ("kind", "name"), [("CN", "alice"), ("DNS", "alice.example"), ("EMAIL", "alice@example"), ("URI", "spiffe://a/alice")]
)
def test_a_client_has_the_name_that_the_setting_says(tmp_path: Path, kind: str, name: str) -> None:
    security = SecuritySettings(client_certificates="accepted", certificate_name=kind)
    assert name_of_certificate(shown(Authority(tmp_path).client("alice", others=ALICE)), security) == name


def test_certificates_that_name_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    security = SecuritySettings(client_certificates="accepted")
    assert name_of_certificate({}, security) is None
    assert name_of_certificate(shown(authority.client("alice", "bob")), security) is None
    assert name_of_certificate(shown(authority.client("ali\x00ce", file="zero")), security) is None
    assert (
        name_of_certificate(
            shown(authority.client("alice", file="dns")),
            SecuritySettings(client_certificates="accepted", certificate_name="DNS"),
        )
        is None
    )
    assert name_of_certificate(shown(authority.client("alice", file="off")), SecuritySettings()) is None


def test_a_server_loads_no_library_for_certificates() -> None:
    """Only `tailrace init`, and a server whose clients must show certificates, make any."""
    rooms = "tailrace.server, tailrace.kafka.apis, tailrace.http.app, tailrace.tls.acceptor, tailrace.tls.names"
    code = f"import sys, {rooms}; sys.exit('cryptography' in sys.modules or 'jwt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
