"""Where the server is."""

import http.client

import pytest

from tailrace.pipeline.connection import ServerAddress
from tailrace.pipeline.errors import OptionError


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix"),
    [
        ("http://127.0.0.1:8081", "127.0.0.1", 8081, ""),
        ("db.example", "db.example", 8080, ""),
        ("db.example:1234", "db.example", 1234, ""),
        ("http://[::1]:8080/", "::1", 8080, ""),
        ("https://tailrace.example", "tailrace.example", 443, ""),
        ("https://gate.example:8443/streams/", "gate.example", 8443, "/streams"),
    ],
)
def test_an_address_has_a_host_a_port_and_what_stands_before_every_path(url: str, host: str, port: int, prefix: str) -> None:
    address = ServerAddress(url).checked()
    connection = address.connect(1.0)
    assert (connection.host, connection.port, address.prefix) == (host, port, prefix)
    assert isinstance(connection, http.client.HTTPSConnection) == url.startswith("https")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "//", "spark://host:7077"])
def test_what_is_no_address_is_refused_with_one_that_is(url: str) -> None:
    with pytest.raises(OptionError, match=r"is not an address such as http://127\.0\.0\.1:8080"):
        ServerAddress(url).checked()


def test_a_file_that_holds_no_certificates_is_named() -> None:
    with pytest.raises(OptionError, match=r"ca_file is '/is/not/there', which can't be read"):
        ServerAddress("https://127.0.0.1", "/is/not/there").connect(1.0)
