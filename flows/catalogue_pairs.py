"""Whom a published draft pairs with: its vocabulary against those of the catalogue's targets, as a job."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.catalogue.schema import Target
from draftmill.digest import sha256_json
from draftmill.outcome import MillError
from draftmill.store.interface import Store
from draftmill.store.manifest import Manifest, read_manifest
from draftmill.store.reading import fetch, get
from flows.chain import Chain, Done, Input, Step
from flows.conversion_steps import Steps
from flows.convert_model import run_job
from flows.runners.runner import GIB, Limits

PROOF = "proof.json"
LIMITS = Limits(memory_bytes=4 * GIB, timeout_s=1800)


@dataclass(frozen=True)
class Paired:
    """pairs: as `Pair.as_json`; not_judged: target -> why."""

    pairs: tuple[dict[str, Any], ...] = ()
    not_judged: Mapping[str, str] | None = None


class Targets:
    """The targets' tokenizer files, each fetched once a run, by whoever needs it first."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        self._lock = threading.Lock()
        self._found: dict[str, Done] = {}
        self._missing: dict[str, str] = {}

    def fetch(self, chain: Chain, steps: Steps) -> tuple[dict[str, Done], dict[str, str]]:
        """(target -> its finished download, target -> why there is none)."""
        with self._lock:
            for name, target in self._targets.items():
                if name in self._found or name in self._missing:
                    continue
                ref = f"{name}@{target.revision}"
                try:
                    listing = _do(chain, steps.resolve(ref, "tokenizer")).facts["listing"]
                    self._found[name] = _do(chain, steps.download(ref, listing))
                except MillError as error:
                    self._missing[name] = str(error)
            return dict(self._found), dict(self._missing)


def find_pairs(
    store: Store, manifest_key: str, targets: Targets, trained_for: tuple[str, ...], chain: Chain, steps: Steps
) -> Paired:
    """Raises what the store and the job raise."""
    found, missing = targets.fetch(chain, steps)
    if not found:
        return Paired((), missing)
    manifest = read_manifest(get(store, manifest_key), store.where(manifest_key))
    folder, digest, rows = _draft(store, manifest, steps.order.work)
    slots = {f"target{number}": name for number, name in enumerate(sorted(found))}
    inputs = {"draft": Input(folder, digest)}
    inputs |= {slot: Input.of(found[name].finished) for slot, name in slots.items()}
    parameters = {"draft_rows": rows, "targets": slots, "trained_for": list(trained_for)}
    title = f"pair {manifest.entry}"
    done = _do(chain, Step("pair", title, manifest.entry, parameters, inputs, limits=LIMITS))
    return Paired(tuple(done.facts["pairs"]), missing | done.facts["not_judged"])


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
