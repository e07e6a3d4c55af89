"""What was just published gets a row in the index, and pages, whoever published it."""

from draftmill.store.index import read_index, update_index
from draftmill.store.index_row import row_at
from draftmill.store.interface import Store
from draftmill.store.pages import publish_pages


def index_publication(store: Store, manifest_key: str) -> bool:
    """Whether the index was changed: a manifest that has its row already is left alone. Raises what reading the
    manifest and changing the index raise."""
    stored = read_index(store)
    if stored and any(row.manifest == manifest_key for row in stored.index.rows):
        return False
    row = row_at(store, manifest_key)
    update_index(store, [row])
    publish_pages(store, {(row.kind, row.entry)})
    return True
