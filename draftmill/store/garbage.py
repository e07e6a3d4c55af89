"""What in a store is of no use: objects that no manifest names, reports without their record, writers' leavings.

An object is only waste when it is older than the grace period, so that a publication under way (whose manifest comes
last) is never touched, and never when a manifest names it. An unfinished folder is taken before it is cleared (see
`clearing`), so that a publisher that goes on with it at that moment either keeps all of it or is told to repeat. A
folder whose manifest cannot be read is left alone and said: another version may know what it holds. Keys outside the
store's own layout are nobody's business here.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from draftmill.outcome import Refused
from draftmill.store.clearing import STALE_S, is_mark, take
from draftmill.store.interface import Entry, Store
from draftmill.store.manifest import NAME, TOP, read_manifest
from draftmill.store.provenance import NAME as PROVENANCE
from draftmill.store.reading import get
from draftmill.store.signatures import is_signature

DAY_S = 86400.0
_COMMITS = {"measure": "report.json", "catalogue": "summary.json"}
"""The last object of a report's folder, by the kind of report."""
_PUBLISHED = tuple(f"{top}/" for top in TOP.values())


@dataclass(frozen=True)
class Waste:
    """`size` in bytes; `why` for a person."""

    key: str
    size: int
    why: str


@dataclass(frozen=True)
class Garbage:
    """waste: in the order of keys. leavings: names of what killed writers left. unread: manifests that say nothing."""

    waste: tuple[Waste, ...]
    leavings: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.waste)


def find_garbage(store: Store, *, now: float, grace_s: float = DAY_S) -> Garbage:
    """Looks, and removes nothing. now: seconds since the epoch. Raises what the store raises."""
    waste: list[Waste] = []
    unread: list[str] = []
    for top in TOP.values():
        for folder, entries in _folders(store, f"{top}/", depth=4):
            try:
                kept = _named(store, folder, entries)
            except Refused:
                unread.append(f"{folder}/{NAME}")
                continue
            why = "its folder has no manifest" if kept is None else "no manifest names it"
            # A folder that is being cleared is waste as soon as its sweep must be dead.
            is_marked = kept is None and any(entry.key == f"{folder}/{NAME}" for entry in entries)
            waste += _old(entries, kept or frozenset(), why, now, STALE_S if is_marked else grace_s)
    for folder, entries in _folders(store, "reports/", depth=3):
        record = _COMMITS.get(folder.split("/")[1])
        if record and not any(entry.key == f"{folder}/{record}" for entry in entries):
            waste += _old(entries, frozenset(), f"its folder has no {record}", now, grace_s)
    return Garbage(tuple(waste), tuple(store.sweep(dry=True)), tuple(unread))


def remove_garbage(store: Store, garbage: Garbage, *, now: float) -> tuple[Waste, ...]:
    """Removes what was found and gives what it removed. What has a manifest or a record by now is kept, and so is a
    folder that something was written into since: each is looked at once more. now: as `find_garbage` was given it."""
    removed: list[Waste] = []
    for folder, waste in groupby(garbage.waste, key=lambda each: _folder(each.key)):
        removed += _clear(store, folder, list(waste), now)
    store.sweep()
    return tuple(removed)


def _clear(store: Store, folder: str, waste: list[Waste], now: float) -> list[Waste]:
    known = {each.key for each in waste}
    entries = list(store.entries(f"{folder}/"))
    if not folder.startswith(_PUBLISHED):
        if any(entry.key not in known for entry in entries):
            return []
    elif (kept := _named(store, folder, entries)) is not None:
        waste = [each for each in waste if each.key not in kept]
    else:
        manifest = f"{folder}/{NAME}"
        if not take(store, manifest, now=now):
            return []
        if all(entry.key in known | {manifest} for entry in store.entries(f"{folder}/")):
            for each in waste:
                if each.key != manifest:
                    store.delete(each.key)
        else:
            waste = []
        store.delete(manifest)
        return waste
    for each in waste:
        store.delete(each.key)
    return waste


def _folder(key: str) -> str:
    """The folder that is committed as a whole: of a report, or of a publication."""
    return "/".join(key.split("/")[: 4 if key.startswith(_PUBLISHED) else 3])


def _folders(store: Store, prefix: str, depth: int) -> Iterator[tuple[str, list[Entry]]]:
    """Each folder of `depth` names with all that is in it; what lies higher is passed over."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in store.entries(prefix):
        parts = entry.key.split("/")
        if len(parts) > depth:
            found["/".join(parts[:depth])].append(entry)
    yield from found.items()


def _named(store: Store, folder: str, entries: list[Entry]) -> frozenset[str] | None:
    """The keys that a manifest keeps, its own and those of provenance and signatures too; None where there is none.

    Raises Refused where it cannot be read.
    """
    key = f"{folder}/{NAME}"
    if not any(entry.key == key for entry in entries):
        return None
    data = get(store, key)
    if is_mark(data):
        return None
    manifest = read_manifest(data, store.where(key))
    signatures = {entry.key for entry in entries if is_signature(entry.key.removeprefix(f"{folder}/"))}
    files = {f"{folder}/{file.path}" for file in manifest.files}
    return frozenset({key, f"{folder}/{PROVENANCE}", *signatures, *files})


def _old(entries: list[Entry], kept: frozenset[str], why: str, now: float, grace_s: float) -> list[Waste]:
    """A folder that something was just written into is somebody's at work, and left whole."""
    if not entries or max(entry.modified for entry in entries) > now - grace_s:
        return []
    return [Waste(entry.key, entry.size, why) for entry in entries if entry.key not in kept]
