"""The index made again from what is in the store: manifests, the evidence beside them, and reports of measurements."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

from draftmill.gguf.naming import parse_gguf_name
from draftmill.outcome import MillError, Refused
from draftmill.progress import Progress, silent
from draftmill.store.index import (
    Accepted,
    Index,
    Measurement,
    Quant,
    Ratio,
    Reason,
    Row,
    Span,
    Stored,
    index_of,
    merged,
    read_index,
    reasons_of,
    replace_index,
)
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import TOP, Manifest, read_manifest
from draftmill.store.reading import get

PROOF, GATE, GATE_PAGE = "proof.json", "gate.json", "report.html"
ACCOUNT = "conversion.json"
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


def row_at(store: Store, key: str, measurements: Mapping[str, Iterable[Measurement]] | None = None) -> Row:
    """The row of the publication whose manifest has this key; `measurements` by sha256 of the draft."""
    manifest = read_manifest(get(store, key), store.where(key))
    evidence = {
        name: get(store, manifest.key_of(name))
        for name in (PROOF, GATE)
        if any(file.path == name for file in manifest.files)
    }
    return row_of(manifest, {name: _object(data) for name, data in evidence.items()}, measurements)


def row_of(
    manifest: Manifest,
    evidence: Mapping[str, dict[str, Any]],
    measurements: Mapping[str, Iterable[Measurement]] | None = None,
) -> Row:
    """The row of a publication. evidence: the content of proof.json or gate.json, by name."""
    models = [file for file in manifest.files if file.role == "model"]
    parts = [parse_gguf_name(PurePosixPath(file.path).name) or {} for file in models]
    found: dict[str, Any]
    if manifest.kind == "package":
        found = _of_package(manifest, evidence)
    else:
        found = _of_checkpoint(manifest) if _is_checkpoint(manifest) else _of_model(evidence)
    own = {each.report: each for file in models for each in (measurements or {}).get(file.sha256, ())}
    targets = [*found.pop("targets"), *(each.target_name for each in own.values())]
    return Row(
        kind=manifest.kind,
        entry=manifest.entry,
        size=next((part["size"] for part in parts if "size" in part), None),
        targets=tuple(dict.fromkeys(targets)),
        quants=tuple(
            Quant(
                encoding=part.get("encoding", PurePosixPath(file.path).stem),
                key=manifest.key_of(file.path),
                size=file.size,
                sha256=file.sha256,
            )
            for file, part in zip(models, parts, strict=True)
        ),
        licence=manifest.terms,
        manifest=manifest.key,
        commit=manifest.source.commit,
        recipe=manifest.recipe,
        measurements=tuple(sorted(own.values(), key=lambda each: (each.started, each.report))),
        created=manifest.created,
        route=route_of(manifest),
        **found,
    )


def route_of(manifest: Manifest) -> str:
    if manifest.kind == "package":
        return "gate"
    if _is_checkpoint(manifest):
        return "dflash"
    return "gguf_borrowed" if manifest.donor else "gguf"


def _is_checkpoint(manifest: Manifest) -> bool:
    """Of a DFlash checkpoint made into a GGUF: the account of the conversion lies beside it."""
    return any(file.path.endswith(f".{ACCOUNT}") for file in manifest.files)


def _of_checkpoint(manifest: Manifest) -> dict[str, Any]:
    target = manifest.donor.source.repo if manifest.donor else None
    return {"family": "DFlash checkpoint", "verdict": "pass", "targets": [target] if target else []}


def _of_model(evidence: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    proof = evidence.get(PROOF, {})
    donor = proof.get("donor") or {}
    return {
        "family": (proof.get("drafter") or {}).get("family"),
        "verdict": "pass",  # a model is published only when every check passed
        "targets": [donor["repository"]] if donor.get("repository") else [],
    }


def _of_package(manifest: Manifest, evidence: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    gate = evidence.get(GATE, {})
    generation = (gate.get("package") or {}).get("generation")
    verdict = gate.get("verdict", "no verdict")
    refusals = [refusal for check in gate.get("checks", ()) for refusal in check["refusals"]]
    code = refusals[0]["code"] if refusals else "gate.no_verdict"
    page = manifest.key_of(GATE_PAGE) if any(file.path == GATE_PAGE for file in manifest.files) else None
    return {
        "family": {1: "DFlash", 2: "DFlash 2"}.get(generation) if isinstance(generation, int) else None,
        "verdict": verdict,
        "reason": None
        if verdict == "pass"
        else Reason(code=code, sentence=gate.get("sentence", "no gate.json is published with it")),
        **reasons_of(refusals),
        "page": page,
        "targets": [],
    }


def measurement_at(store: Store, key: str) -> Measurement:
    """The measurement whose report.json has this key."""
    from draftmill.measurement.record import load

    return measurement_of(load(get(store, key)), key)


def measurement_of(record: Any, key: str) -> Measurement:
    """A record (Speed or Accepted) in short; its figures are computed from the samples. key: of its report.json."""
    from draftmill.measurement.acceptance_results import acceptance_result
    from draftmill.measurement.record import WITH_DRAFT
    from draftmill.measurement.record import Accepted as AcceptedRecord
    from draftmill.measurement.speed_results import pairs_of, speed_result

    found: dict[str, Any] = {}
    answers: list[Any]
    if isinstance(record, AcceptedRecord):
        result = acceptance_result(record)
        acceptance = [(None, result.figures), *result.by_kind.items()]
        answers = list(record.acceptance.answers) if record.acceptance else []
    else:
        speed = speed_result(record)
        answers = [draft.counters for _, draft in pairs_of(record) if draft.counters]
        acceptance = [(None, speed.acceptance), *((kind.kind, kind.acceptance) for kind in speed.kinds)]
        found = {"reason": speed.reason, "lossless": speed.lossless}
        if request := speed.request:
            interval = request.interval
            found["ratio"] = Ratio(
                value=request.ratio,
                low=interval.low,
                high=interval.high,
                level=request.rule.level,
                pairs=request.pairs,
            )
        result = speed  # type: ignore[assignment]
    spans = _spans(answers, {prompted.name: prompted.kind for prompted in record.prompts})
    ran = record.ran.get(WITH_DRAFT) or next(iter(record.ran.values()), None)
    return Measurement(
        report=key,
        what=record.what,
        run=record.run,
        started=record.started,
        device=record.setup.device,
        engine_device=record.regime.device,
        build=ran.build if ran else record.regime.build,
        regime=record.regime.digest,
        draft=record.draft.sha256,
        target=record.target.sha256,
        target_name=record.target.name,
        n_max=record.regime.n_max,
        n_min=record.regime.n_min,
        p_min=record.regime.p_min,
        word=result.word,
        sentence=result.sentence,
        acceptance=tuple(
            Accepted(
                kind=kind,
                accepted=figures.accepted,
                offered=figures.offered,
                rounds=figures.rounds,
                span=spans.get(kind),
            )
            for kind, figures in acceptance
            if figures
        ),
        **found,
    )


def _spans(answers: list[Any], kind_of: Mapping[str, str]) -> dict[str | None, Span]:
    """The interval of accepted / offered for each kind of prompt, and for all (None), where the prompts suffice."""
    from draftmill.measurement.acceptance_interval import LEVEL, acceptance_interval

    groups: dict[str | None, list[Any]] = defaultdict(list)
    for answer in answers:
        groups[None].append(answer)
        groups[kind_of[answer.prompt]].append(answer)
    found: dict[str | None, Span] = {}
    for kind, group in groups.items():
        counts = [(answer.prompt, answer.accepted, answer.offered) for answer in group]
        if interval := acceptance_interval(counts):
            prompts = len({answer.prompt for answer in group})
            found[kind] = Span(low=interval.low, high=interval.high, level=LEVEL, prompts=prompts)
    return found


def _is_named(entry: Any, name: str) -> bool:
    return entry.key.rpartition("/")[2] == name


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _problem(where: str, error: MillError) -> str:
    said = error.refusals[0].sentence if isinstance(error, Refused) else str(error)
    return f"{where} is left out: {said}"
