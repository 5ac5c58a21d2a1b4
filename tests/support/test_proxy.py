"""The faulty network leaves nothing open, whatever its clients do."""

import gc
import socket
import threading
import time
import warnings

from tests.support.patience import PATIENCE_SECONDS
from tests.support.proxy import FaultyProxy

_BYTES = 64 << 20
"""More than the sockets between a server and a client hold."""
_SECONDS_TO_SEE_IT = 0.3


def test_a_connection_whose_client_reads_nothing_is_closed_at_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        is_blocked = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(1.0)
                try:
                    connection.sendall(bytes(_BYTES))
                except OSError:
                    is_blocked.set()

        serving = threading.Thread(target=serve)
        serving.start()
        with FaultyProxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
            client = socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])))
            client.sendall(b"anything")
            assert is_blocked.wait(PATIENCE_SECONDS)
            client.shutdown(socket.SHUT_WR)
            serving.join(PATIENCE_SECONDS)
            time.sleep(_SECONDS_TO_SEE_IT)
        del proxy
        gc.collect()
        client.close()
    assert [str(warning.message) for warning in found if issubclass(warning.category, ResourceWarning)] == []
