"""index.json: a row for every publication and verdict of the catalogue, in one small file that is never half-written.

The index is a convenience: whatever a row says is also in a manifest or a report, from which `index_rebuilding` makes
the rows again. The one exception are rows without a manifest (an entry that was refused before anything could be
published): the index is where they live.

Writers put rows in with `update_index`. It replaces the file only if nobody else did meanwhile, else it reads and
merges again, so that two publishers both find their rows in it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from draftmill.outcome import Refusal, Refused
from draftmill.store.contention import until_first
from draftmill.store.interface import Store
from draftmill.store.manifest import Commit, Kind, Sha256, Strict
from draftmill.store.reading import get

NAME = "index.json"
MOST_FINDINGS, LONGEST_VALUE = 20, 1000
"""Of a row, and characters; the report of a gate and the summary of a run have all."""

Verdict = Literal["pass", "refused", "no verdict"]
Count = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Reason(Strict):
    """Why the verdict is not a pass. `code` is stable; `sentence` says what is wrong and what to do. `where`: file,
    tensor or key; `source`: where the fact is from; `would_change`: what would make it another verdict."""

    code: str
    sentence: str
    where: str | None = None
    measured: Any = None
    expected: Any = None
    source: str | None = None
    would_change: str | None = None


class Quant(Strict):
    """A published model file: `encoding` as its name says it (Q4_K_M), its key in the store, bytes and digest."""

    encoding: str
    key: str
    size: Count
    sha256: Sha256


class Ratio(Strict):
    """(target alone's seconds) / (target + draft's), the median over `pairs`, with the interval of that level."""

    value: Finite
    low: Finite
    high: Finite
    level: Finite
    pairs: Count


class Span(Strict):
    """An interval of that level around a figure, from so many distinct prompts."""

    low: Finite
    high: Finite
    level: Finite
    prompts: Count


class Accepted(Strict):
    """Counts over the prompts of one kind, or over all (`kind` None): accepted / offered, and (accepted + rounds) /
    rounds tokens a round, untruncated. `span`: of accepted / offered, None where there are too few prompts for one."""

    kind: str | None
    accepted: Count
    offered: Count
    rounds: Count
    span: Span | None = None


class Measurement(Strict):
    """A report in the store, in short. `report` is the key of its report.json, `regime` the digest of all that its
    figures depend on; `device` is the profile's name, `engine_device` what the engine calls it. `draft` and `target`
    are sha256 of the files that ran; n_max, n_min and p_min how the draft was used."""

    report: str
    what: Literal["speed", "acceptance"]
    run: str
    started: str
    device: str
    engine_device: str
    build: str
    regime: Sha256
    draft: Sha256
    target: Sha256
    target_name: str
    n_max: Count
    n_min: Count | None
    p_min: Finite | None
    word: str
    reason: str | None = None
    sentence: str
    ratio: Ratio | None = None
    lossless: str | None = None
    acceptance: tuple[Accepted, ...] = ()


class Pairing(Strict):
    """What a vocabulary says of a target: `verdict` of draftmill.tokenizers.pairing, or "not judged". off_pair: the
    draft was trained for others (None: not known for which). why: the first reason against it, or the remarks."""

    target: str
    verdict: Literal["compatible", "compatible with remarks", "refused", "not judged"]
    off_pair: bool | None = None
    why: str | None = None


class Row(Strict):
    """One publication, or one verdict that led to none.

    `reason` in short, `findings` what the verdict rests on, one by one, and `more_findings` how many others there are.
    family: as the catalogue names it, None where nothing tells. size: as a file name says it ("0.6B"). targets: the
    models it drafts for, as far as is known. licence: SPDX's name or the hub's, and after " + " each other one that
    binds, as an ancestor's does. manifest, commit, recipe: None where nothing was published (or, for the commit,
    resolved). page: key of a page for people.
    """

    kind: Kind
    entry: Annotated[str, Field(pattern=r"^[^/\s]+/[^/\s]+$")]
    family: str | None
    size: str | None = None
    route: str
    verdict: Verdict
    reason: Reason | None = None
    findings: tuple[Reason, ...] = ()
    more_findings: Count = 0
    targets: tuple[str, ...] = ()
    pairs: tuple[Pairing, ...] = ()
    quants: tuple[Quant, ...] = ()
    licence: str | None
    manifest: str | None
    page: str | None = None
    commit: Commit | None
    recipe: Sha256 | None
    measurements: tuple[Measurement, ...] = ()
    created: datetime

    @model_validator(mode="after")
    def _is_consistent(self) -> "Row":
        if self.created.tzinfo is None:
            raise ValueError("created has no time zone")
        if self.manifest and not (self.commit and self.recipe):
            raise ValueError("a row with a manifest has a commit and a recipe")
        if self.verdict != "pass" and self.reason is None:
            raise ValueError(f"the verdict {self.verdict} has no reason")
        return self

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Two rows of one identity say the same thing at two times; the later one counts."""
        return self.kind, self.entry, self.commit or "", self.recipe or ""

    @property
    def version(self) -> str:
        """commit12-recipe8, as far as there is one."""
        return "-".join(part for part in ((self.commit or "")[:12], (self.recipe or "")[:8]) if part)


def reasons_of(refusals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`findings` and `more_findings` of a row for refusals as JSON (`Refusal.as_json`, with source and would_change
    where a rule gives them), with long values cut."""
    shown = [{name: _short(value) for name, value in each.items()} for each in refusals[:MOST_FINDINGS]]
    known = [{name: each[name] for name in Reason.model_fields if name in each} for each in shown]
    return {
        "findings": tuple(Reason(**({"sentence": ""} | each)) for each in known),
        "more_findings": len(refusals) - len(shown),
    }


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ... ({len(text)} characters)"


class Index(Strict):
    """`rows` by entry, the newest first within one. `written`: when, UTC."""

    schema_version: Literal[1] = 1
    written: datetime
    rows: tuple[Row, ...]

    def newest(self) -> tuple[Row, ...]:
        """The newest row of every entry."""
        found: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            found.setdefault((row.kind, row.entry), row)
        return tuple(found.values())

    def to_bytes(self) -> bytes:
        return (self.model_dump_json() + "\n").encode()


def index_of(rows: Iterable[Row]) -> Index:
    """An index of these rows, in its order."""
    ordered = sorted(rows, key=lambda row: row.created, reverse=True)
    return Index(written=datetime.now(UTC), rows=tuple(sorted(ordered, key=lambda row: (row.entry, row.kind))))


@dataclass(frozen=True)
class Stored:
    """The index as it is in the store, the digest of its bytes, and the etag to replace it by."""

    index: Index
    etag: str
    sha256: str


def read_index(store: Store) -> Stored | None:
    """None where the store has none. Raises Refused("index.unreadable") where it is no index of this version."""
    head = store.head(NAME)
    if head is None:
        return None
    data = get(store, NAME)
    try:
        return Stored(Index.model_validate_json(data), head.etag, hashlib.sha256(data).hexdigest())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Refused(
            Refusal(
                "index.unreadable",
                store.where(NAME),
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
                "an index of schema version 1",
                "The index was written by another version of draftmill, or by hand. `draftmill store index --anew` "
                "makes it again from the manifests and reports; rows without a manifest are lost then.",
            )
        ) from None


def merged(old: Iterable[Row], new: Iterable[Row]) -> tuple[Row, ...]:
    """Rows of both. Of two with one identity the later created one counts, the new one in doubt, with the measurements
    and targets of both, and the pairs that are known."""
    rows = {row.identity: row for row in old}
    for row in new:
        other = rows.get(row.identity)
        rows[row.identity] = _joined(other, row) if other else row
    return tuple(rows.values())


def _joined(old: Row, new: Row) -> Row:
    first, last = (new, old) if old.created > new.created else (old, new)
    measurements = {each.report: each for each in (*first.measurements, *last.measurements)}
    return last.model_copy(
        update={
            "measurements": tuple(sorted(measurements.values(), key=lambda each: (each.started, each.report))),
            "targets": tuple(dict.fromkeys((*last.targets, *first.targets))),
            "pairs": last.pairs or first.pairs,  # no manifest has them, so that a row made from one does not
        }
    )


def update_index(
    store: Store,
    rows: Iterable[Row],
    pause: Callable[[float], object] = time.sleep,
    *,
    is_overtaken: Callable[[Row], bool] = lambda row: False,
) -> Index:
    """Puts rows into the store's index, whatever others put into it meanwhile. Returns what was written.

    is_overtaken: stored rows without a manifest that no longer hold; they go at the same time.

    Raises Temporary("store.changed") when it was changed each time, Refused("index.unreadable"), and what the store
    raises.
    """
    new = tuple(rows)

    def change(stored: Stored | None) -> Index:
        old = stored.index.rows if stored else ()
        return index_of(merged((row for row in old if row.manifest or not is_overtaken(row)), new))

    return replace_index(store, change, pause)


def replace_index(
    store: Store,
    change: Callable[[Stored | None], Index],
    pause: Callable[[float], object] = time.sleep,
    read: Callable[[Store], Stored | None] = read_index,
) -> Index:
    """Replaces the index by `change(the stored one)`, read and changed again as often as somebody else was first."""

    def replace() -> Index:
        stored = read(store)
        index = change(stored)
        store.replace(NAME, index.to_bytes(), stored.etag if stored else None)
        return index

    return until_first(replace, pause)
