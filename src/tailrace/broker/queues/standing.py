"""How a queue stands: what is out, what came back, and how much is left."""

from tailrace.broker.queues.group import Queue
from tailrace.broker.queues.share import Share
from tailrace.broker.topics.topics import Topics
from tailrace.model.queue import QueueStatus, RecordState, ShareStatus
from tailrace.store.contract import Store

_REPEATED = (RecordState.AVAILABLE, RecordState.ARCHIVING)


def status_of(queue: Queue, store: Store, topics: Topics) -> QueueStatus:
    shares = [status for share in queue.shares.values() if (status := _status(share, store, topics)) is not None]
    shares.sort(key=lambda status: (status.topic, status.partition))
    return QueueStatus(queue.name, queue.record.max_deliveries, len(queue.waiters), shares)


def _status(share: Share, store: Store, topics: Topics) -> ShareStatus | None:
    live = topics.by_id(share.partition.topic_id)
    if live is None:
        return None
    end = store.bounds(share.partition).end
    state = share.state
    acquired = sum(record.state is RecordState.ACQUIRED for record in state)
    repeat = sum(record.state in _REPEATED for record in state)
    lag = max(0, end - state.end) + len(state)
    return ShareStatus(live.topic.name, share.partition.number, state.start, state.end, end, acquired, repeat, lag)
