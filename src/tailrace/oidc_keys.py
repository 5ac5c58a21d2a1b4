"""Downloads the keys of an OIDC issuer. It is no part of the broker, which has no sockets."""

import time
from urllib.parse import urlsplit

from tailrace.broker.security.oidc import is_url
from tailrace.broker.security.settings import SecuritySettings
from tailrace.broker.security.signing_keys import KeySource, check_size

_STEP_SECONDS = 5.0
_TOTAL_SECONDS = 10.0
_OK = 200
_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}


class DownloadedKeys:
    """A JWKS document at an `https://` address. The certificate of its server is verified, and redirections not followed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = urlsplit(url).hostname or "oidc_keys"
        """Only the host: the rest of an address may be secret."""

    def read(self) -> bytes:
        import httpx

        end = time.monotonic() + _TOTAL_SECONDS
        document = bytearray()
        try:
            with (
                httpx.Client(timeout=_STEP_SECONDS, follow_redirects=False) as client,
                client.stream("GET", self._url, headers=_HEADERS) as response,
            ):
                if response.status_code != _OK:
                    raise OSError(f"the answer has status {response.status_code}, not {_OK}")
                for piece in response.iter_raw():
                    document += piece
                    check_size(document)
                    if time.monotonic() > end:
                        raise OSError(f"the answer took longer than {_TOTAL_SECONDS:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Its text may have the address.
            raise OSError(f"no answer ({type(error).__name__})") from None
        return bytes(document)


def downloaded_keys(settings: SecuritySettings) -> KeySource | None:
    """Return the source of the issuer's keys, if they are to be downloaded."""
    keys = settings.oidc_keys
    return DownloadedKeys(keys) if keys is not None and is_url(keys) else None
