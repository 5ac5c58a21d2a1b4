"""Which log this is: a name that is made once and stays with the folder."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.store.contract import Store


async def identity_of(store: Store, committer: Committer, new_uuid: Callable[[], UUID]) -> str:
    """The name, made and stored if there is none yet. Kafka's clients see it as the id of the cluster."""

    def decide() -> Changes | None:
        if store.latest(keys.IDENTITY) is not None:
            return None
        made = urlsafe_b64encode(new_uuid().bytes).rstrip(b"=")
        return Changes(puts=((keys.IDENTITY, made),))

    def settled(_: CommitReceipt | None) -> str:
        return (store.get(keys.IDENTITY) or b"").decode()

    return await committer.submit(Change(decide, settled))
