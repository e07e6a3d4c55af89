"""Whom a published draft pairs with: its vocabulary against those of the catalogue's targets, as a job."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.catalogue.schema import Target
from draftmill.digest import sha256_json
from draftmill.outcome import MillError, Refused
from draftmill.store.interface import Store
from draftmill.store.manifest import Manifest, read_manifest
from draftmill.store.reading import fetch, get
from flows.chain import Chain, Done, Input, JobEnded, Step
from flows.conversion_steps import Steps
from flows.convert_model import run_job
from flows.runners.runner import GIB, Limits

PROOF = "proof.json"
LIMITS = Limits(memory_bytes=4 * GIB, timeout_s=1800)


@dataclass(frozen=True)
class Paired:
    """pairs: as `Pair.as_json`; not_judged: target -> why; unreached: those of them that a failure stands for, which
    may be over the next time, and no refusal."""

    pairs: tuple[dict[str, Any], ...] = ()
    not_judged: Mapping[str, str] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()


def unjudged(errors: Mapping[str, MillError]) -> Paired:
    """errors: target -> what kept it from being judged."""
    unreached = tuple(sorted(name for name, error in errors.items() if not is_refusal(error)))
    return Paired((), {name: str(error) for name, error in errors.items()}, unreached)


def is_refusal(error: MillError) -> bool:
    return error.result.outcome == "refused" if isinstance(error, JobEnded) else isinstance(error, Refused)


class Targets:
    """The targets' tokenizer files, each fetched once a run, by whoever needs it first."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        self._lock = threading.Lock()
        self._found: dict[str, Done] = {}
        self._missing: dict[str, MillError] = {}

    def fetch(self, chain: Chain, steps: Steps) -> tuple[dict[str, Done], Paired]:
        """(target -> its finished download, those that there is none of)."""
        with self._lock:
            for name, target in self._targets.items():
                if name in self._found or name in self._missing:
                    continue
                ref = f"{name}@{target.revision}"
                try:
                    listing = _do(chain, steps.resolve(ref, "tokenizer")).facts["listing"]
                    self._found[name] = _do(chain, steps.download(ref, listing))
                except MillError as error:
                    self._missing[name] = error
            return dict(self._found), unjudged(self._missing)


def find_pairs(
    store: Store, manifest_key: str, targets: Targets, trained_for: tuple[str, ...], chain: Chain, steps: Steps
) -> Paired:
    """Raises what the store and the job raise."""
    found, missing = targets.fetch(chain, steps)
    if not found:
        return missing
    manifest = read_manifest(get(store, manifest_key), store.where(manifest_key))
    folder, digest, rows = _draft(store, manifest, steps.order.work)
    slots = {f"target{number}": name for number, name in enumerate(sorted(found))}
    inputs = {"draft": Input(folder, digest)}
    inputs |= {slot: Input.of(found[name].finished) for slot, name in slots.items()}
    parameters = {"draft_rows": rows, "targets": slots, "trained_for": list(trained_for)}
    title = f"pair {manifest.entry}"
    done = _do(chain, Step("pair", title, manifest.entry, parameters, inputs, limits=LIMITS))
    not_judged = {**missing.not_judged, **done.facts["not_judged"]}
    return Paired(tuple(done.facts["pairs"]), not_judged, missing.unreached)


def _draft(store: Store, manifest: Manifest, work: Path) -> tuple[Path, str, int]:
    """(folder with the published tokenizer, its digest, rows of the draft's embedding)."""
    files = [file for file in manifest.files if file.role == "tokenizer"]
    digest = sha256_json(sorted([file.path, file.size, file.sha256] for file in files))
    folder = work / "pairs" / digest[:32]
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        place = folder / file.path
        if not place.is_file():
            fetch(store, manifest.key_of(file.path), place, sha256=file.sha256, size=file.size)
    proof = json.loads(get(store, manifest.key_of(PROOF)))
    return folder, digest, proof["vocabulary"]["embedding_rows"]


def _do(chain: Chain, step: Step) -> Done:
    return run_job.with_options(task_run_name=step.title)(chain, step)
