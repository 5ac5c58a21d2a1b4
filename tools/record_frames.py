"""A proxy before a Kafka listener that keeps what clients send: the corpus of `tests/data/frames/`.

    tailrace serve --kafka 127.0.0.1:9093 --advertise 127.0.0.1:9092 &
    python -m tools.record_frames --listen 127.0.0.1:9092 --server 127.0.0.1:9093 --client NAME

One file holds one request as hexadecimal text, named by client, API and version; those of Produce also by their compression.
The first small one of each kind is kept. `pytest tests/compat --everything --record` does this for every client that it plays.
"""

import argparse
import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from struct import Struct

from tailrace.model.errors import MalformedMessageError
from tailrace.wire.batch import HEADER_BYTES, read_header
from tailrace.wire.compression import Compression
from tailrace.wire.message_codec import MessageCodec, MessageSource, skip_tags
from tailrace.wire.messages.produce import ProduceRequest
from tools.generate_messages import generated_apis

FRAMES = Path(__file__).resolve().parent.parent / "tests" / "data" / "frames"
MAX_BYTES = 1_500
_LINE = 120
_HEAD = Struct(">hhih")
_SIZE = Struct(">i")


class FrameName:
    """Says how a frame is called in the corpus."""

    def __init__(self) -> None:
        apis = generated_apis()
        self._apis = {api.key: api for api in apis}
        self._codec = MessageCodec()

    def of(self, frame: bytes) -> str | None:
        """None for a frame of an API or version that is not spoken here, which Kafka's clients may send as well."""
        key, version, _, id_length = _HEAD.unpack_from(frame)
        api = self._apis.get(key)
        if api is None or not api.lowest <= version <= api.highest:
            return None
        name = f"{api.name}-v{version}"
        if api.request is not ProduceRequest:
            return name
        source = MessageSource(frame, _HEAD.size + max(0, id_length))
        try:
            if api.is_flexible(version):
                skip_tags(source)
            request = self._codec.read(ProduceRequest, version, api.is_flexible(version), source)
        except (MalformedMessageError, IndexError):
            return None
        batches = [each.records for topic in request.topic_data for each in topic.partition_data if each.records is not None]
        heads = [read_header(batch) for batch in batches if len(batch) >= HEADER_BYTES]
        return f"{name}-{Compression(heads[0].codec).name.lower()}" if heads else None


class Recorder:
    """The proxy, in a thread of its own. `client` is whose frames these are, for connections from now on."""

    def __init__(self, folder: Path, ignored_ids: Iterable[bytes] = ()) -> None:
        self.client = ""
        self._folder = folder
        self._ignored_ids = frozenset(ignored_ids)
        self._names = FrameName()
        self._server: tuple[str, int] | None = None
        self._loop = asyncio.new_event_loop()
        self._listening: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="recorder", daemon=True)

    def listen(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Where clients are to connect. They are let through when `forward` has said where to."""
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._listen(host, port), self._loop).result(10)

    def forward(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = host, int(port)

    def stop(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
        self._loop.close()

    async def _listen(self, host: str, port: int) -> str:
        self._listening = await asyncio.start_server(self._serve, host, port)
        bound_host, bound_port = self._listening.sockets[0].getsockname()[:2]
        return f"{bound_host}:{bound_port}"

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = self.client
        try:
            if self._server is not None:
                answers, requests = await asyncio.open_connection(*self._server)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(answers, writer))
                    both.create_task(self._pass_on(client, reader, requests))
        except (OSError, ExceptionGroup):
            # Whoever ended the connection ends the other half as well.
            pass
        finally:
            writer.close()

    async def _pass_on(self, client: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await reader.readexactly(_SIZE.size)
                frame = await reader.readexactly(*_SIZE.unpack(size))
                writer.write(size + frame)
                await writer.drain()
                self._keep(client, frame)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _keep(self, client: str, frame: bytes) -> None:
        if not _HEAD.size <= len(frame) <= MAX_BYTES or not client:
            return
        (id_length,) = Struct(">h").unpack_from(frame, _HEAD.size - 2)
        name = self._names.of(frame)
        if name is None or frame[_HEAD.size : _HEAD.size + max(0, id_length)] in self._ignored_ids:
            return
        path = self._folder / client / f"{name}.hex"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            text = frame.hex()
            path.write_text("".join(text[at : at + _LINE] + "\n" for at in range(0, len(text), _LINE)))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Keep one request of each kind that a Kafka client sends.")
    parser.add_argument("--listen", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="where the listener really is")
    parser.add_argument("--client", required=True, metavar="NAME", help="the folder that the frames go to")
    parser.add_argument("--into", type=Path, default=FRAMES, metavar="FOLDER")
    given = parser.parse_args()
    recorder = Recorder(given.into)
    recorder.client = given.client
    host, _, port = given.listen.rpartition(":")
    recorder.forward(given.server)
    recorder.listen(host, int(port))
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    recorder.stop()


if __name__ == "__main__":
    main()
