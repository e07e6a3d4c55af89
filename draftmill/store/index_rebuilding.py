"""The index made again from what is in the store: manifests, the evidence beside them, and reports of measurements."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from draftmill.outcome import MillError, Refused
from draftmill.progress import Progress, silent
from draftmill.store.index import Index, Measurement, Stored, index_of, merged, read_index, replace_index
from draftmill.store.index_report import measurement_at
from draftmill.store.index_row import row_at
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import TOP

REPORTS, REPORT = "reports/measure/", "report.json"
THREADS = 8

T = TypeVar("T")


@dataclass(frozen=True)
class Built:
    """`problems`: what could not be read, a sentence each; the rest of the index is whole."""

    index: Index
    problems: tuple[str, ...]


def build_index(store: Store, progress: Progress = silent) -> Built:
    """An index of every manifest and every report in the store. Reads only. What is damaged is left out, and said."""
    manifests = [entry.key for top in TOP.values() for entry in store.entries(f"{top}/") if _is_named(entry, MANIFEST)]
    reports = [entry.key for entry in store.entries(REPORTS) if _is_named(entry, REPORT)]
    total, done = len(manifests) + len(reports), 0
    problems: list[str] = []

    def read(keys: list[str], make: Callable[[str], T]) -> list[T]:
        nonlocal done

        def attempt(key: str) -> T | MillError:
            try:
                return make(key)
            except MillError as error:
                return error

        made: list[T] = []
        with ThreadPoolExecutor(THREADS) as pool:
            for key, result in zip(keys, pool.map(attempt, keys), strict=True):
                done += 1
                progress("manifests and reports", done, total)
                if isinstance(result, MillError):
                    problems.append(_problem(store.where(key), result))
                else:
                    made.append(result)
        return made

    measurements = read(reports, lambda key: measurement_at(store, key))
    by_draft: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        by_draft[measurement.draft].append(measurement)
    rows = read(manifests, lambda key: row_at(store, key, by_draft))
    return Built(index_of(rows), tuple(problems))


def rebuild_index(store: Store, progress: Progress = silent, *, anew: bool = False) -> Built:
    """Builds the index and puts it into the store. From the one that is there it keeps rows without a manifest, and
    what was published since the listing; `anew` keeps nothing and so also replaces one that cannot be read."""
    built = build_index(store, progress)
    seen = {row.manifest for row in built.index.rows}
    reports = {measurement.report for row in built.index.rows for measurement in row.measurements}

    def still_there(key: str) -> bool:
        return store.head(key) is not None

    def change(stored: Stored | None) -> Index:
        if stored is None or anew:
            return built.index
        kept = []
        for row in stored.index.rows:
            if row.manifest is None or row.manifest in seen or still_there(row.manifest):
                late = tuple(each for each in row.measurements if each.report in reports or still_there(each.report))
                kept.append(row.model_copy(update={"measurements": late}))
        return index_of(merged(kept, built.index.rows))

    def read_any(store: Store) -> Stored | None:
        try:
            return read_index(store)
        except Refused:
            head = store.head("index.json")
            if not anew or head is None:
                raise
            return Stored(built.index, head.etag, "")

    return Built(replace_index(store, change, read=read_any), built.problems)


def _is_named(entry: Any, name: str) -> bool:
    return entry.key.rpartition("/")[2] == name


def _problem(where: str, error: MillError) -> str:
    said = error.refusals[0].sentence if isinstance(error, Refused) else str(error)
    return f"{where} is left out: {said}"
