"""The row of a publication: what its manifest and the evidence beside it say, for the index."""

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from draftmill.gguf.naming import parse_gguf_name
from draftmill.store.index import Measurement, Quant, Reason, Row, reasons_of
from draftmill.store.interface import Store
from draftmill.store.manifest import Manifest, read_manifest
from draftmill.store.reading import get

PROOF, GATE, GATE_PAGE = "proof.json", "gate.json", "report.html"
ACCOUNT = "conversion.json"


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


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
