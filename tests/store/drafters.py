"""Publications as pulls meet them: several quants, a tokenizer, proofs, a licence, and what was measured of them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from draftmill.store.index import Reason, Row
from draftmill.store.interface import Store
from draftmill.store.manifest import File, Licence, Manifest, Tool
from draftmill.store.publish import publish
from tests.store.samples import COMMIT, RECIPE, digest, noise, source

MIB = 1 << 20
START = datetime(2026, 1, 1, tzinfo=UTC)
PROOF = {"drafter": {"family": "PARD", "pard_token": 7}, "donor": None, "checks": [{"check": "eos", "passed": True}]}


def model_name(quant: str) -> str:
    return f"PARD-Tiny-0.6B-v1.0-{quant}.gguf"


def contents(quants: Iterable[str] = ("F16", "Q4_K_M"), size: int = 3 * MIB + 5) -> dict[str, tuple[str, bytes]]:
    """path -> (role, bytes) of a small drafter; each model has `size` bytes."""
    found: dict[str, tuple[str, bytes]] = {}
    for number, quant in enumerate(quants):
        found[model_name(quant)] = ("model", noise(size, seed=number + 1))
        found[model_name(quant).replace(".gguf", ".check.json")] = ("evidence", b'{"verdict": "pass"}')
    found["proof.json"] = ("evidence", json.dumps(PROOF).encode())
    found["tokenizer.json"] = ("tokenizer", b"{}")
    found["LICENSE"] = ("licence", b"MIT License")
    return found


def publish_drafter(
    store: Store,
    folder: Path,
    entry: str = "amd/PARD-Tiny",
    *,
    files: dict[str, tuple[str, bytes]] | None = None,
    day: int = 0,
    **changes: Any,
) -> Manifest:
    """Publishes `files` (path -> role, bytes); created `day` days after the first of January 2026."""
    files = contents() if files is None else files
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, data) in files.items():
        (folder / name).write_bytes(data)
    values: dict[str, Any] = {
        "kind": "model",
        "entry": entry,
        "recipe": RECIPE,
        "source": source(repo=entry, commit=COMMIT),
        "files": tuple(
            File(path=name, size=len(data), sha256=digest(data), role=role)  # type: ignore[arg-type]
            for name, (role, data) in files.items()
        ),
        "tools": (Tool(name="draftmill", version="0.1.0"),),
        "parameters": {},
        "job_keys": {},
        "licence": Licence(id="MIT", text="LICENSE" if "LICENSE" in files else None),
        "notices": ("Built with Tiny",),
        "can": ("Drafts token by token.",),
        "cannot": ("Drafts K tokens in one pass only in another engine.",),
        "created": START + timedelta(days=day),
    }
    manifest = Manifest(**{**values, **changes})
    publish(store, {name: folder / name for name in files}, manifest)
    return manifest


def refused_row(entry: str = "amd/Gumiho-8B", **changes: Any) -> Row:
    """A verdict that led to no publication, as the index keeps it."""
    values: dict[str, Any] = {
        "kind": "model",
        "entry": entry,
        "family": "Gumiho",
        "route": "refuse",
        "verdict": "refused",
        "reason": Reason(code="gumiho.no_config", sentence="There is no config.json.", would_change="A config.json."),
        "licence": None,
        "manifest": None,
        "commit": COMMIT,
        "recipe": None,
        "created": START,
    }
    return Row(**{**values, **changes})
