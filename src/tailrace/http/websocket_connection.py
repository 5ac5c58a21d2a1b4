"""The WebSockets of the HTTP listener: uvicorn's, with the exit for slow subscribers that `connections` has for HTTP."""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from tailrace.http.connection import CUT, DRAINED, EXTENSION, LINGER_SECONDS, abort_soon


class WebSocketConnection(WebSocketsSansIOProtocol):
    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"] = {
                **(self.scope["extensions"] or {}),
                EXTENSION: {CUT: self.cut, DRAINED: self.writable.wait},
            }

    def cut(self, code: int, reason: str) -> None:
        """Say why, and close when the client has heard it, or after a short time.

        On its way through what it has not read yet the client answers pings. A connection that is closed already would answer
        that with a reset, and the reason would be lost with all the rest; so it is read until the end.
        """
        if not self.close_sent and not self.transport.is_closing():
            self.stop_keepalive()
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
            abort_soon(self.transport)
