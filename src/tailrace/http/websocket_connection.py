"""The WebSockets of the HTTP listener: uvicorn's, with callbacks to disconnect slow subscribers, as in `connection.py`.

Apart from `connection.py`, because the libraries of WebSockets are loaded with the first one.
"""

from functools import partial

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from tailrace.http.connection import CERTIFICATE, DISCONNECT, DRAINED, EXTENSION, LINGER_SECONDS, abort_soon, certificate_of


class WebSocketConnection(WebSocketsSansIOProtocol):
    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"] = {
                **(self.scope["extensions"] or {}),
                EXTENSION: {
                    DISCONNECT: self.disconnect,
                    DRAINED: self.writable.wait,
                    CERTIFICATE: partial(certificate_of, self.transport),
                },
            }

    def disconnect(self, code: int, reason: str) -> None:
        """Send the reason, and close when the client has read it, or after `LINGER_SECONDS`.

        The connection reads until then: a client that answers a ping on a closed connection would get a reset, and lose the
        reason with everything else that it has not read.
        """
        if not self.close_sent and not self.transport.is_closing():
            self.stop_keepalive()
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
            abort_soon(self.transport)
