"""A folder that is being cleared: whoever takes its manifest's place first, a publisher or a sweep, has the folder.

The sweep's own object there is MARK and a random word. It deletes what an unfinished publication left, and the mark
last. A publisher that comes meanwhile is told to repeat; a sweep that was killed is gone on with by the next one.
"""

import hashlib
import secrets

from draftmill.outcome import Temporary
from draftmill.store.interface import Store
from draftmill.store.reading import get

MARK = b'{"cleared_by": "draftmill gc", "sweep": "'
STALE_S = 3600.0


def is_mark(data: bytes) -> bool:
    return data.startswith(MARK)


def being_cleared(where: str) -> Temporary:
    return Temporary(
        f"{where}: what an unfinished publication left here is being removed; repeat in a minute. If it stays so, the "
        "sweep was killed: `draftmill gc` goes on with it an hour later.",
        code="store.cleared",
        where=where,
    )


def take(store: Store, manifest_key: str, *, now: float) -> bool:
    """Whether the folder is this sweep's now: it has no manifest, and no other sweep that lives clears it."""
    mark = MARK + secrets.token_hex(8).encode() + b'"}\n'
    creation = store.create(manifest_key, mark, hashlib.sha256(mark).hexdigest())
    if creation.created:
        return True
    taken = next((entry.modified for entry in store.entries(manifest_key) if entry.key == manifest_key), now)
    if taken > now - STALE_S or not is_mark(get(store, manifest_key)):
        return False
    try:
        store.replace(manifest_key, mark, creation.head.etag)
    except Temporary:
        return False
    return True
