"""What SQL has done since the server was started: plain numbers, which the metrics page turns into Prometheus families."""

from collections import Counter

from tailrace.model.stats import COUNTS, Histogram


class SqlStats:
    """Each number is changed by one thread only: those of tables by the tables' writer, the others on the event loop."""

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        """That ended well, by what they are: `insert`, `select`, `create_topic` ..."""
        self.failures = 0
        """Requests of which a statement failed."""
        self.rows: Counter[str] = Counter()
        """Changed, by table."""
        self.transactions = 0
        """On tables, each that of one client."""
        self.transactions_per_commit = Histogram(COUNTS)
        self.write_seconds = Histogram()
        """From the submission of a transaction to its answer."""
        self.waiting_writes = 0
        self.waiting_write_bytes = 0
        self.behind = ""
        """Why tables can't be read or written, while they can't."""
        self.checkpoints = 0
        """Of tables' rows, put into the log."""
        self.checkpoint_rows: dict[str, int] = {}
        """Rows that are in the log of checkpoints that are being taken, by table."""
        self.rebuilds = 0
        """Times that the file of the tables was found to be damaged and was made again."""
        self.replayed_changes = 0
        """Applied at the start, because the file of the tables lacked them."""
