"""The store's pages for people: index.html, and models/<owner>/<repo>/index.html (or packages/...) for each drafter.

They are made from index.json and the manifests, and hold nothing of their own. Who changes index.json makes the pages
afterwards. A page is looked at first, then index.json is read, and the page is replaced only if nobody else replaced
it since; else all of it again. So what is written over a page is never older than what was there: of two writers at
once the last one leaves the state of both, and one that is killed leaves a whole older page, which the next one mends.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from draftmill.outcome import InputOutput, Refused, Temporary
from draftmill.progress import Progress, silent
from draftmill.reports.catalogue_page import catalogue_page
from draftmill.reports.drafter_page import drafter_page
from draftmill.store.contention import until_first
from draftmill.store.endings import changed
from draftmill.store.index import Row, Stored, read_index
from draftmill.store.interface import Head, Store
from draftmill.store.keys import check_key
from draftmill.store.manifest import TOP, Kind, Manifest, read_manifest
from draftmill.store.reading import get

PAGE = "index.html"
THREADS = 8

Drafter = tuple[Kind, str]
"""kind, "owner/repo"."""


def publish_pages(
    store: Store,
    drafters: Iterable[Drafter] | None = None,
    progress: Progress = silent,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Makes the pages of these drafters, and index.html, as index.json is now, and removes those of drafters that
    index.json does not name. None: of all that have one or should. Does nothing where there is no index.json.

    Raises Temporary("store.changed") when others were first each time, and what the store raises.
    """
    if drafters is None:
        drafters = _all(store)
    left = {key: drafter for drafter in drafters if (key := page_key(*drafter))}
    total = len(left)

    def make_drafters() -> None:
        for key in _replace_drafters(store, left):
            del left[key]
            progress("pages", total - len(left), total)
        if left:
            raise changed(store.where(next(iter(left))))

    if left:
        until_first(make_drafters, pause)
    until_first(lambda: _replace_catalogue(store), pause)


def page_key(kind: Kind, entry: str) -> str | None:
    """None for a name that cannot be a key: such a drafter is in index.html only."""
    try:
        return check_key(f"{TOP[kind]}/{entry}/{PAGE}")
    except Refused:
        return None


def _replace_catalogue(store: Store) -> None:
    head = store.head(PAGE)
    stored = read_index(store)
    if stored is None:
        return
    pages = {drafter: key for row in stored.index.newest() if (key := page_key(*(drafter := (row.kind, row.entry))))}
    _replace(store, PAGE, head, catalogue_page(stored.index, stored.sha256, pages))


def _replace_drafters(store: Store, pages: dict[str, Drafter]) -> list[str]:
    """The keys of those that are up to date now; of the others somebody else was first."""
    with ThreadPoolExecutor(THREADS) as pool:
        heads = dict(zip(pages, pool.map(store.head, pages), strict=True))
        stored = read_index(store)
        rows = _rows(stored)

        def replace(key: str) -> bool:
            own = rows.get(pages[key])
            if not own:
                if heads[key]:
                    store.delete(key)
                return True
            try:
                _replace(store, key, heads[key], drafter_page(own, key, *_manifest(store, own)))
            except Temporary as error:
                if error.code != "store.changed":
                    raise
                return False
            return True

        return [key for key, done in zip(list(pages), pool.map(replace, pages), strict=True) if done]


def _rows(stored: Stored | None) -> dict[Drafter, list[Row]]:
    found: dict[Drafter, list[Row]] = defaultdict(list)
    for row in stored.index.rows if stored else ():
        found[row.kind, row.entry].append(row)
    return found


def _manifest(store: Store, rows: Sequence[Row]) -> tuple[Manifest | None, str]:
    """Of the newest publication, or why it cannot be read."""
    key = next((row.manifest for row in rows if row.manifest), None)
    if key is None:
        return None, ""
    try:
        return read_manifest(get(store, key), store.where(key)), ""
    except (Refused, InputOutput) as error:
        sentence = error.refusals[0].sentence if isinstance(error, Refused) else "It is missing or damaged."
        return None, f"The manifest {key} cannot be read. {sentence}"


def _replace(store: Store, key: str, head: Head | None, page: str) -> None:
    data = page.encode()
    if head is None or head.sha256 != hashlib.sha256(data).hexdigest():
        store.replace(key, data, head.etag if head else None)


def _all(store: Store) -> set[Drafter]:
    """The drafters that index.json names; pages of others go. What is listed was made from an index.json of before, so
    that the one read afterwards names every drafter that is still one."""
    keys = [entry.key for top in TOP.values() for entry in store.entries(f"{top}/")]
    stored = read_index(store)
    named: set[Drafter] = {(row.kind, row.entry) for row in stored.index.rows} if stored else set()
    kept = {page_key(*drafter) for drafter in named}
    for key in keys if stored else ():
        if key.count("/") == 3 and key.endswith(f"/{PAGE}") and key not in kept:
            store.delete(key)
    return named
