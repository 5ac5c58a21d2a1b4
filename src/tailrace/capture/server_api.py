"""What a capture asks of the Tailrace server.

Every request may be sent again without harm, so a restart of the server is a pause: transient errors are retried until the
capture is stopped. The database keeps what is not confirmed meanwhile.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import NoneType
from typing import TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from tailrace.api.consume import FetchBody, StartPosition
from tailrace.api.pipelines import OffsetsBody, OffsetsResponse, PublishStagesResponse, TopicOffsetsView
from tailrace.api.snapshots import (
    BeginSnapshotBody,
    ClaimChunkBody,
    ClaimChunkResponse,
    FailedChunkBody,
    FinishTableBody,
    OfferChunksBody,
    OfferedChunk,
    OfferProgressBody,
    OfferProgressView,
    SnapshotBody,
    StagedChunkBody,
    WantSnapshotBody,
)
from tailrace.api.sources import (
    AttachBody,
    AttachResponse,
    BeginSourceBody,
    DefineTableBody,
    ReportSourceBody,
    ReportSourceResponse,
    WriteLargeBody,
)
from tailrace.api.topics import CreateTopicBody
from tailrace.capture.change_events import CommitInfo
from tailrace.client._sync.transport import Transport
from tailrace.client.config import ConnectionConfig
from tailrace.client.credentials import CredentialSource
from tailrace.client.http11 import JSON
from tailrace.client.retry import is_transient
from tailrace.model.backoff import Backoff
from tailrace.model.errors import ServerUnreachableError, TailraceError, UnknownTopicError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import TableId
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.pipeline import NO_MARK, MarkMove
from tailrace.model.record import Record
from tailrace.model.source import Source, SourceReport, SourceSnapshot, SourceTable
from tailrace.model.topic import Topic
from tailrace.wire.batch_stream import decode_fetched
from tailrace.wire.records import decode_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, encode_staged_chunk

T = TypeVar("T")

_BYTES = "application/octet-stream"
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_FETCH_BYTES = 4 * MIB

BODY_BYTES = 8 * MIB
"""Bytes of batches in one request. What is larger is staged in parts."""


class ServerRequests:
    """Sends requests that are retried until `stopping` is set. May be used by several threads."""

    def __init__(self, url: str, stopping: threading.Event, login: CredentialSource) -> None:
        config = ConnectionConfig(**login.settings(), request_timeout=timedelta(seconds=60))
        self._transport = Transport(url, config)
        self._url = self._transport.url
        self._stopping = stopping

    def close(self) -> None:
        self._transport.close()

    def stage(self, source: str, batches: Iterable[StagedBatch]) -> tuple[str, int]:
        """Stage batches on the server. Return the name of the stage and its parts."""
        stage = f"capture-{uuid4().hex}"
        parts = 0
        for part in _parts(batches):
            body = encode_staged_chunk(StagedChunk((), part))
            self._send("PUT", f"{_path(source)}/stages/{stage}/{parts}", body, _BYTES)
            parts += 1
        return stage, parts

    def _ask(self, path: str, body: msgspec.Struct, response_type: type[T]) -> T:
        response = self._send("POST", path, msgspec.json.encode(body), JSON)
        return msgspec.json.decode(response or b"null", type=response_type)

    def _send(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                return self._transport.send_once(method, path, body, content_type=content_type)
            except TailraceError as error:
                if not is_transient(error):
                    raise
                if self._stopping.wait(backoff.next_pause()):
                    raise ServerUnreachableError(f"{self._url} did not answer before the capture stopped: {error}") from error


class ChunkApi(ServerRequests):
    """What whoever reads chunks of snapshots asks of the server."""

    def claim(self, worker: str, source: str | None, *, is_spark: bool) -> ClaimChunkResponse:
        return self._ask("/api/snapshots/claim", ClaimChunkBody(worker, source, is_spark), ClaimChunkResponse)

    def report_staged(self, body: StagedChunkBody) -> None:
        self._ask("/api/snapshots/staged", body, NoneType)

    def report_failed(self, body: FailedChunkBody) -> None:
        self._ask("/api/snapshots/failed", body, NoneType)


class SourceApi(ServerRequests):
    """Sends the requests of one capture."""

    def __init__(self, url: str, name: str, owner: str, stopping: threading.Event, login: CredentialSource) -> None:
        super().__init__(url, stopping, login)
        self.url = url
        self.login = login
        self.name = name
        self._path = _path(name)
        self._owner = owner
        self._epoch = 0

    def attach(self) -> AttachResponse:
        """Become the process that captures the source. Any other one is refused from then on."""
        attached = self._ask(f"{self._path}/attach", AttachBody(self._owner), AttachResponse)
        self._epoch = attached.epoch
        return attached

    def begin(self, position: int, system_id: str, timeline: int) -> Source:
        return self._ask(f"{self._path}/begin", BeginSourceBody(self._epoch, position, system_id, timeline), Source)

    def define_table(self, table: SourceTable) -> SourceTable:
        return self._ask(f"{self._path}/tables", DefineTableBody(self._epoch, table), SourceTable)

    def append(self, chunk: StagedChunk) -> None:
        """Append whole transactions. They are durable on return."""
        self._send("POST", f"{self._path}/transactions?epoch={self._epoch}", encode_staged_chunk(chunk), _BYTES)

    def write_large(self, batches: Iterable[StagedBatch], move: MarkMove) -> None:
        """Append a transaction of any size. All of it is in the log on return."""
        self._write_staged(*self.stage(self.name, batches), move, is_snapshot=False)

    def append_rows(self, batches: Iterable[StagedBatch], mark: str) -> None:
        """Append rows of a snapshot, each part once for its place behind the mark. The next part is made while one is sent."""
        path = f"{self._path}/rows?epoch={self._epoch}"
        at = NO_MARK
        with ThreadPoolExecutor(1, "tailrace-rows") as sending:
            sent: Future[bytes] | None = None
            for number, part in enumerate(_parts(batches), 1):
                body = encode_staged_chunk(StagedChunk([MarkMove(mark, at, number)], part))
                if sent is not None:
                    sent.result()
                sent = sending.submit(self._send, "POST", path, body, _BYTES)
                at = number
            if sent is not None:
                sent.result()

    def write_rows(self, stage: str, parts: int, mark: str) -> None:
        """Append rows of a snapshot that were staged, once for each mark."""
        self._write_staged(stage, parts, MarkMove(mark, NO_MARK, 1), is_snapshot=True)

    def _write_staged(self, stage: str, parts: int, move: MarkMove, *, is_snapshot: bool) -> None:
        before = NO_MARK if move.before is None else move.before
        body = WriteLargeBody(self._epoch, [(stage, parts)], move.source, before, move.after, is_snapshot)
        while not self._ask(f"{self._path}/large", body, PublishStagesResponse).is_done:
            if self._stopping.is_set():
                raise ServerUnreachableError("the capture is stopping")

    def report(self, report: SourceReport) -> ReportSourceResponse:
        """Report once, and return what is to be done. A heartbeat that fails is followed by the next."""
        body = msgspec.json.encode(ReportSourceBody(self._epoch, self._owner, report))
        response = self._transport.send_once("POST", f"{self._path}/report", body, max_seconds=10.0)
        return msgspec.json.decode(response, type=ReportSourceResponse)

    def want_snapshot(self, patterns: Sequence[str]) -> None:
        self._ask(f"{self._path}/snapshot/want", WantSnapshotBody(self._epoch, list(patterns)), NoneType)

    def begin_snapshot(self, tables: Sequence[TableId], wanted: Sequence[str], *, holds_all: bool) -> SourceSnapshot:
        body = BeginSnapshotBody(self._epoch, list(tables), list(wanted), holds_all)
        return self._ask(f"{self._path}/snapshot/begin", body, SourceSnapshot)

    def offer_chunks(self, offer: str, snapshot: str, at: CommitInfo, chunks: Sequence[OfferedChunk]) -> None:
        body = OfferChunksBody(self._epoch, offer, snapshot, at.commit_lsn, at.commit_time_us, list(chunks))
        self._ask(f"{self._path}/snapshot/offer", body, NoneType)

    def offer_progress(self, offer: str, published: Sequence[int], wait_seconds: float) -> OfferProgressView:
        body = OfferProgressBody(self._epoch, offer, list(published), int(wait_seconds * 1000))
        return self._ask(f"{self._path}/snapshot/progress", body, OfferProgressView)

    def finish_table(self, table: TableId, lsn: int) -> SourceSnapshot:
        return self._ask(f"{self._path}/snapshot/finish", FinishTableBody(self._epoch, table, lsn), SourceSnapshot)

    def end_snapshot(self) -> None:
        self._ask(f"{self._path}/snapshot/end", SnapshotBody(self._epoch), NoneType)

    def records(self, topic: str, offset: int, end: int) -> Iterator[Record]:
        """Yield the records of a topic with one partition, as far as `end`."""
        while offset < end:
            body = msgspec.json.encode(FetchBody(topic, [StartPosition(0, offset)], _FETCH_BYTES))
            (part,) = decode_fetched(self._send("POST", "/api/topics/fetch", body, JSON))
            for placed in part.batches:
                for record in decode_batch(placed.batch, DEFAULT_LIMITS):
                    if offset <= record.offset < end:
                        yield record
            if part.head.next_offset <= offset:
                return
            offset = part.head.next_offset

    def find_topic(self, name: str, at: StartEdge = StartEdge.LATEST) -> TopicOffsetsView | None:
        """Return the id of a topic and the offsets at which its partitions end, or begin."""
        try:
            found = self._ask("/api/batches/offsets", OffsetsBody([name], at=at), OffsetsResponse)
        except UnknownTopicError:
            return None
        return found.topics[0]

    def create_topic(self, name: str) -> None:
        self._ask("/api/topics", CreateTopicBody(name), Topic)


def _path(source: str) -> str:
    return f"/api/sources/{quote(source, safe='')}"


def _parts(batches: Iterable[StagedBatch]) -> Iterator[list[StagedBatch]]:
    part: list[StagedBatch] = []
    size = 0
    for staged in batches:
        if part and size + len(staged.batch) > BODY_BYTES:
            yield part
            part, size = [], 0
        part.append(staged)
        size += len(staged.batch)
    if part:
        yield part
