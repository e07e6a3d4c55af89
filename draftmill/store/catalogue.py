"""What a store holds, for whoever wants to find and fetch: the Python face of list, show, pull, verify and url.

    from draftmill.store import Catalogue

    catalogue = Catalogue.open("s3://drafters?endpoint_url=https://s3.example.org")
    for row in catalogue.rows(family="PARD", verdict="pass"):
        print(row.entry, [quant.encoding for quant in row.quants])
    pulled = catalogue.pull("amd/PARD-Qwen3-0.6B", Path("PARD-Qwen3-0.6B"), quants=["Q4_K_M"])

Only reading rights are needed, and nothing beyond the base install.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from draftmill.outcome import InputOutput, Refusal, Refused, Temporary
from draftmill.progress import Progress, silent
from draftmill.store.index import Index, Measurement, Row, Stored, Verdict, read_index
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import TOP, File, Manifest
from draftmill.store.opening import open_existing_store
from draftmill.store.pull import THREADS, Pulled, pull, read_publication
from draftmill.store.reading import verified
from draftmill.store.reference import Place, Reference, ambiguous, no_version, place_of, read_reference, unknown
from draftmill.store.selection import select, select_file
from draftmill.store.signatures import signers
from draftmill.store.verify import Verification, verify
from draftmill.store.verify_published import verify_published

LARGEST_EVIDENCE = 4 << 20
DAY_S = 24 * 3600


@dataclass(frozen=True)
class Listing:
    """`from_index`: the rows are the index's, as of `written`; else they were read from the manifests just now, and
    `problems` says what could not be."""

    index: Index
    from_index: bool
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """Everything about one publication. manifest: None where nothing was published, and `row` says why. evidence: the
    JSON files that prove it, by path. history: the entry's other rows, newest first. signers: ids of the keys that its
    signatures name, not verified."""

    row: Row
    manifest: Manifest | None
    where: str | None
    evidence: dict[str, Any]
    history: tuple[Row, ...]
    signers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Url:
    """Where one file can be fetched from without credentials, or within this machine. expires_s: None: never."""

    file: File
    url: str
    expires_s: int | None


class Catalogue:
    """A store, read. Every method raises a `MillError` whose sentence says what to do.

    `problems`: why the index was passed over, where it cannot be read; manifests and reports told what they could.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: tuple[str, ...] = ()

    @classmethod
    def open(cls, url: str, credentials_file: Path | None = None) -> "Catalogue":
        """url: a folder that exists, file:///folder or s3://bucket/prefix, see `opening.open_existing_store`."""
        return cls(open_existing_store(url, credentials_file))

    def _index(self) -> Stored | None:
        """None also where it cannot be read: it is a convenience, and whatever else it says is in the manifests."""
        try:
            return read_index(self.store)
        except Refused as refused:
            found = refused.refusals[0]
            self.problems = (
                f"{found.where} is passed over, with the verdicts that led to no publication ({found.measured}). "
                + found.sentence,
            )
            return None

    def listing(self, *, fresh: bool = False, progress: Progress = silent) -> Listing:
        """The store's index; where none can be read, or `fresh`, one made from manifests and reports: slower."""
        stored = None if fresh else self._index()
        if stored:
            return Listing(stored.index, from_index=True)
        from draftmill.store.index_rebuilding import build_index

        built = build_index(self.store, progress)
        return Listing(built.index, from_index=False, problems=built.problems)

    def rows(
        self,
        *,
        family: str | None = None,
        verdict: str | None = None,
        target: str | None = None,
        device: str | None = None,
        history: bool = False,
        listing: Listing | None = None,
    ) -> tuple[Row, ...]:
        """The newest row of each entry (`history`: all of them) for which every filter holds, by entry.

        family, verdict, device: the whole word, in any case; device: a row with a measurement on it. target: part of a
        target's name, in any case. Raises ValueError for a word that is no verdict.
        """
        if verdict is not None and verdict.casefold() not in get_args(Verdict):
            raise ValueError(f"{verdict!r} is no verdict; these are: {', '.join(get_args(Verdict))}")
        index = (listing or self.listing()).index
        rows = index.rows if history else index.newest()
        return tuple(row for row in rows if _fits(row, family, verdict, target, device))

    def find(self, ref: str) -> Place:
        """The publication that REF names, the newest one where several fit; see `reference`.

        Asks the store itself, so that what was published a moment ago is found. Raises Refused("reference.unknown",
        "reference.no_version", "reference.ambiguous", "reference.form", "reference.not_published").
        """
        reference = read_reference(ref)
        places = self._places(reference)
        fitting = [place for place in places if _fits_place(reference, place)]
        if len({(place.kind, place.entry) for place in fitting}) > 1:
            raise ambiguous(reference, (place.folder.rpartition("/")[0] for place in fitting), self.store.name)
        if not fitting:
            raise self._nothing(reference, [place for place in places if self._same_entry(reference, place)])
        digests = [place.version.partition("-") for place in fitting]
        if reference.version and min(len({digest[part] for digest in digests}) for part in (0, 2)) > 1:
            raise ambiguous(reference, map(str, fitting), self.store.name)
        if len(fitting) == 1:
            return fitting[0]
        created = {place: self._created(place) for place in fitting}
        return max(fitting, key=lambda place: (created[place], place.version))

    def _created(self, place: Place) -> datetime:
        """Of a folder that is being cleared: before everything else."""
        try:
            return read_publication(self.store, _key(place))[0].created
        except Temporary as error:
            if error.code != "store.cleared":
                raise
            return datetime.min.replace(tzinfo=UTC)

    def show(self, ref: str, *, fresh: bool = False) -> Shown:
        """Everything known about REF. `fresh`: measurements are looked for in the reports, not in the index."""
        listing = self.listing(fresh=fresh)
        try:
            place = self.find(ref)
        except Refused as refused:
            reference = read_reference(ref)
            rows = [row for row in listing.index.rows if _fits_row(reference, row)]
            if refused.code not in ("reference.unknown", "reference.not_published") or not rows:
                raise
            return Shown(rows[0], None, None, {}, tuple(rows[1:]))
        key = _key(place)
        manifest, _ = read_publication(self.store, key)
        rows = [row for row in listing.index.rows if (row.kind, row.entry) == (place.kind, place.entry)]
        newest = self.later_verdict(manifest)
        if newest and read_reference(ref).version is None:
            return Shown(newest, None, None, {}, tuple(row for row in rows if row.identity != newest.identity))
        row = next((row for row in rows if row.manifest == key), None) or self._row(key, listing)
        others = tuple(other for other in rows if other.identity != row.identity)
        keys = signers(self.store, manifest)
        return Shown(row, manifest, self.store.where(key), self._evidence(manifest), others, keys)

    def measurements(self, draft: str) -> tuple[Measurement, ...]:
        """What the index knows of the model with this sha256."""
        stored = self._index()
        found = {each.report: each for row in (stored.index.rows if stored else ()) for each in row.measurements}
        return tuple(each for each in found.values() if each.draft == draft)

    def later_verdict(self, manifest: Manifest) -> Row | None:
        """The entry's newest row, where it is of a later day and led to no publication: what is published is old."""
        stored = self._index()
        rows = [row for row in (stored.index.rows if stored else ()) if row.entry == manifest.entry]
        newest = next((row for row in rows if row.kind == manifest.kind), None)
        return newest if newest and newest.manifest is None and newest.created > manifest.created else None

    def manifest(self, ref: str) -> Manifest:
        """The manifest of REF's publication."""
        return read_publication(self.store, _key(self.find(ref)))[0]

    def pull(
        self,
        ref: str,
        folder: Path,
        quants: Iterable[str] = (),
        progress: Progress = silent,
        *,
        threads: int = THREADS,
        public_key: Path | None = None,
    ) -> Pulled:
        """Fetches REF's files into `folder`, verified; see `pull.pull`. The same call goes on after an interruption."""
        key = _key(self.find(ref))
        return pull(self.store, key, folder, quants, progress, threads=threads, public_key=public_key)

    def verify(
        self,
        path: Path,
        quants: Iterable[str] = (),
        progress: Progress = silent,
        *,
        compare: bool = True,
        public_key: Path | None = None,
    ) -> Verification:
        """A pulled folder against its manifest; `compare`: and the manifest against the one in this store."""
        return verify(path, quants, self.store if compare else None, progress, public_key=public_key)

    def verify_published(
        self, ref: str, progress: Progress = silent, *, public_key: Path | None = None
    ) -> Verification:
        """REF where it lies, every byte; see `verify_published.verify_published`."""
        return verify_published(self.store, _key(self.find(ref)), progress, public_key=public_key)

    def urls(
        self, ref: str, *, file: str | None = None, quants: Iterable[str] = (), expires_s: int = DAY_S
    ) -> tuple[Url, ...]:
        """An address for each file of REF: presigned for `expires_s` seconds at an S3 server (whoever has it can read),
        file:// in a folder. file: of this path only."""
        manifest = self.manifest(ref)
        files = (select_file(manifest, file),) if file else select(manifest, quants)
        found = []
        for each in files:
            url, lasts = self.store.url(manifest.key_of(each.path), expires_s)
            found.append(Url(each, url, lasts))
        return tuple(found)

    def _places(self, reference: Reference) -> list[Place]:
        tops = [TOP[reference.kind]] if reference.kind else list(TOP.values())
        prefixes = [f"{top}/{reference.entry}/" if reference.owner else f"{top}/" for top in tops]
        keys = (entry.key for prefix in prefixes for entry in self.store.entries(prefix))
        return [place for key in keys if (place := place_of(key))]

    def _nothing(self, reference: Reference, same: list[Place]) -> Refused:
        if same:
            return no_version(reference, map(str, same), self.store.name)
        stored = self._index()
        rows = stored.index.rows if stored else ()
        if refused := next((row for row in rows if _fits_row(reference, row) and row.manifest is None), None):
            return _not_published(self.store, refused)
        names = [row.entry for row in rows] or [
            place.entry
            for top in TOP.values()
            for entry in self.store.entries(f"{top}/")
            if (place := place_of(entry.key))
        ]
        return unknown(reference, names, self.store.name)

    @staticmethod
    def _same_entry(reference: Reference, place: Place) -> bool:
        return place.entry == reference.entry or (
            not reference.owner and place.entry.rpartition("/")[2] == reference.repo
        )

    def _row(self, key: str, listing: Listing) -> Row:
        """Of a publication that the index does not know yet."""
        from draftmill.store.index_row import row_at

        measurements = {each.report: each for row in listing.index.rows for each in row.measurements}
        by_draft: dict[str, list[Measurement]] = {}
        for each in measurements.values():
            by_draft.setdefault(each.draft, []).append(each)
        return row_at(self.store, key, by_draft)

    def _evidence(self, manifest: Manifest) -> dict[str, Any]:
        """What cannot be read, or is not what was published, stands there as a sentence."""
        found: dict[str, Any] = {}
        for file in manifest.files:
            if file.role == "evidence" and file.path.endswith(".json") and file.size <= LARGEST_EVIDENCE:
                key = manifest.key_of(file.path)
                try:
                    found[file.path] = json.loads(
                        b"".join(verified(self.store.read(key), file.sha256, self.store.where(key)))
                    )
                except (InputOutput, ValueError) as error:
                    found[file.path] = str(error)
        return found


def _key(place: Place) -> str:
    return f"{place.folder}/{MANIFEST}"


def _fits_place(reference: Reference, place: Place) -> bool:
    commit, _, recipe = place.version.partition("-")
    return reference.fits(place.kind, place.entry, commit, recipe)


def _fits_row(reference: Reference, row: Row) -> bool:
    return reference.fits(row.kind, row.entry, row.commit or "", row.recipe or "")


def _fits(row: Row, family: str | None, verdict: str | None, target: str | None, device: str | None) -> bool:
    return (
        (family is None or (row.family or "").casefold() == family.casefold())
        and (verdict is None or row.verdict.casefold() == verdict.casefold())
        and (target is None or any(target.casefold() in name.casefold() for name in row.targets))
        and (device is None or any(each.device.casefold() == device.casefold() for each in row.measurements))
    )


def _not_published(store: Store, row: Row) -> Refused:
    reason = row.reason
    return Refused(
        Refusal(
            "reference.not_published",
            store.name,
            row.verdict,
            "a publication",
            f"{row.entry} is not published: {row.verdict}"
            + (f", {reason.code}: {reason.sentence}" if reason else "")
            + " `draftmill show` tells all of it.",
        )
    )
