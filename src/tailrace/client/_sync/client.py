# Generated from _async/client.py by tools/generate_sync.py; change that file, then run it.

"""The entry point of the SDK: one server, and consumers, publishers and subscribers for it."""

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, TypeVar
from weakref import WeakSet

from tailrace.client._sync.consumer import TopicConsumer
from tailrace.client._sync.publisher import Publisher
from tailrace.client._sync.queue import QueueSubscription
from tailrace.client._sync.subscriber import Subscriber
from tailrace.client._sync.transport import Transport
from tailrace.client.config import ConnectionConfig, ConsumerConfig, PublisherConfig
from tailrace.client.copying.csv_reader import CsvFormat
from tailrace.client.copying.sources import FileFormat, Header
from tailrace.client.credentials import split_url, with_defaults
from tailrace.client.values import CopyProgress, CopyResult, PositionReset, RejectedRow
from tailrace.model.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.client._sync.copy import TableCopy

C = TypeVar("C", bound=ConnectionConfig)


class Client:
    """Makes consumers, publishers and subscribers for one server.

    Example:
        with Client("http://127.0.0.1:8080") as client:
            with client.publisher() as publisher:
                result = publisher.publish("orders", {"id": 1}, key="c1")
                print(result.offset, result.cursor)
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | PathLike[str] | None = None,
        certificate_file: str | PathLike[str] | None = None,
        key_file: str | PathLike[str] | None = None,
    ) -> None:
        """What is given here is the default of the settings of these names for everything that this client makes."""
        self.url, from_url = split_url(url)
        if from_url is not None and (user, password, token) == (None, None, None):
            user, password = from_url
        self._connection_config = ConnectionConfig(
            user=user,
            password=password,
            token=token,
            ca_file=None if ca_file is None else fspath(ca_file),
            certificate_file=None if certificate_file is None else fspath(certificate_file),
            key_file=None if key_file is None else fspath(key_file),
        )
        self._transport: Transport | None = None
        self._made: WeakSet[TopicConsumer | Publisher | QueueSubscription] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def consumer(
        self,
        config: ConsumerConfig | None = None,
        on_reset: Callable[[PositionReset], None] | None = None,
        **settings: Any,
    ) -> TopicConsumer:
        """Make a consumer from its config, or from settings as `ConsumerConfig.from_properties` takes them.

        `on_reset` is called when the consumer changes its position because its topic was deleted and created again.
        """
        completed = self._with_defaults(config or ConsumerConfig.from_properties(settings))
        consumer = TopicConsumer(self.url, completed, on_reset)
        self._made.add(consumer)
        return consumer

    def publisher(self, config: PublisherConfig | None = None, **settings: Any) -> Publisher:
        """Make a publisher from its config, or from settings as `PublisherConfig.from_properties` takes them."""
        publisher = Publisher(self.url, self._with_defaults(config or PublisherConfig.from_properties(settings)))
        self._made.add(publisher)
        return publisher

    def subscriber(self) -> Subscriber:
        return Subscriber(self.url, self._connection_config, on_made=self._made.add)

    def copy_into(
        self,
        table: str,
        source: "str | PathLike[str] | BinaryIO | Any",
        *,
        columns: Sequence[str] | None = None,
        format: FileFormat | None = None,
        header: Header = True,
        delimiter: str = ",",
        quote: str = '"',
        escape: str | None = None,
        null: str = "",
        on_error: Literal["stop", "skip"] = "stop",
        reject_file: "str | PathLike[str] | BinaryIO | None" = None,
        start_line: int = 1,
        on_progress: Callable[[CopyProgress], None] | None = None,
        on_rejected: Callable[[RejectedRow], None] | None = None,
    ) -> CopyResult:
        """Copy the rows of a file into a table: CSV or Parquet of any size, or a table or reader of pyarrow.

        Rows are sent in chunks of up to 20,000, in order. Each chunk is one transaction: all its rows are in, or none. A row
        that can't be stored raises `CopyStoppedError`, which names its line, column and value; the rows before it are in, and
        `start_line` goes on with `next_line` of the error. With `on_error="skip"` such rows are left out, counted, passed to
        `on_rejected` and written to `reject_file`: they are not CSV, or have an invalid value or a key that exists.

        Args:
            table: Its name.
            source: A path, a binary file, a `pyarrow.Table` or a `pyarrow.RecordBatchReader`.
            columns: The columns that the file has, in their order; of Parquet and Arrow, those to copy. Others get defaults.
            format: `"csv"` or `"parquet"`; by default as the name of the file ends.
            header: Whether the first line of CSV names the columns, in any order. `"match"` wants exactly the columns of the
                table, and `"skip"` ignores the line.
            delimiter: What stands between the fields of CSV.
            quote: What stands around a field of CSV with delimiters, quotes or line breaks.
            escape: What stands before a quote inside of quotes; by default the quote itself.
            null: The text that is a null, if it has no quotes.
            start_line: Where to begin: a line of CSV, else a row, counted from 1. A header is read from the first line anyway.
            on_progress: Called before and after each chunk.
        """
        csv = CsvFormat(delimiter=delimiter, quote=quote, escape=escape, null=null)
        return self._copying().copy_into(
            table,
            source,
            columns=columns,
            format=format,
            header=header,
            csv=csv,
            on_error=on_error,
            reject_file=reject_file,
            start_line=start_line,
            on_progress=on_progress,
            on_rejected=on_rejected,
        )

    def copy_out(
        self,
        source: str,
        target: "str | PathLike[str] | BinaryIO",
        *,
        params: "Sequence[Any] | dict[str, Any]" = (),
        columns: Sequence[str] | None = None,
        format: FileFormat | None = None,
        header: bool = True,
        delimiter: str = ",",
        quote: str = '"',
        escape: str | None = None,
        null: str = "",
        on_progress: Callable[[CopyProgress], None] | None = None,
    ) -> CopyResult:
        """Copy the rows of a table or a query to a file, CSV or Parquet, however many there are.

        CSV is written as PostgreSQL's COPY writes it. A file appears under its name when it is complete.

        Args:
            source: The name of a table or topic, or a query: a text that begins with `SELECT`, `WITH`, `VALUES` or a bracket.
            target: A path or a binary file.
            params: Values for the parameters of a query.
            columns: Columns of the table, if not all are wanted.
            format: `"csv"` or `"parquet"`; by default as the name of the file ends.
            header: Whether the first line of CSV has the names of the columns.
        """
        csv = CsvFormat(delimiter=delimiter, quote=quote, escape=escape, null=null)
        return self._copying().copy_out(
            source, target, params=params, columns=columns, format=format, header=header, csv=csv, on_progress=on_progress
        )

    def _copying(self) -> "TableCopy":
        # Imported with the first COPY: it needs pyarrow.
        from tailrace.client._sync.copy import TableCopy

        if self._transport is None:
            self._transport = Transport(self.url, self._connection_config)
        return TableCopy(self._transport)

    def close(self) -> None:
        """Close everything that this client made and that is still open: consumers, publishers, subscriptions to queues."""
        failures = []
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        while self._made:
            try:
                self._made.pop().close()
            except TailraceError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _with_defaults(self, config: C) -> C:
        return with_defaults(config, self._connection_config)
