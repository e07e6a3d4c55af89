"""Runs the command line as a user does, on a hub, a store and a Prefect server of the test."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file
from tests.support.checkpoints import write_checkpoint
from tests.support.inputs import ROOT, qwen3_tokenizer

DRAFT, DONOR, PLAIN = "amd/PARD2-Qwen3-Tiny", "Qwen/Qwen3-Tiny", "amd/PARD-Qwen3-Tiny"
TINY = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
PARD = {"pard_token": 151670, "spd_type": "pard"}
CARD = "---\nlicense: apache-2.0\nbase_model: Qwen/Qwen3-0.6B\n---\n"


def write_hub(root: Path) -> None:
    """A PARD draft with its tokenizer, a weights-only PARD-2-like draft, and the donor of the second."""
    write_checkpoint(root / PLAIN, **TINY, **PARD)
    write_checkpoint(root / DRAFT, tokenizer=None, **TINY, **PARD)
    (root / DONOR).mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (root / DONOR / name).write_bytes((qwen3_tokenizer() / name).read_bytes())
    (root / DONOR / "config.json").write_bytes((root / PLAIN / "config.json").read_bytes())
    for repo in (PLAIN, DRAFT, DONOR):
        (root / repo / "README.md").write_text(CARD)


@dataclass
class Mill:
    """A work folder and a store of its own. `run` gives (exit code, parsed JSON or None, standard error)."""

    work: Path
    store: str
    hub: str
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "HF_ENDPOINT": self.hub, "DRAFTMILL_WORK": str(self.work), **self.environment}
        environment["DRAFTMILL_STORE"] = self.store
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("draftmill")), *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, timeout: float = 300) -> tuple[int, Any, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout)
        try:
            value = json.loads(out)
        except ValueError:
            value = out
        return process.returncode, value, err


def jobs_run(ending: dict[str, Any]) -> list[str]:
    """Titles of the jobs that were not taken from the cache, the resolving ones left out."""
    return [job["title"] for job in ending["jobs"] if not job["cached"] and not job["title"].startswith("resolve")]


def published_files(store: Path) -> dict[str, Path]:
    """Every object of a local store that a manifest commits."""
    found = {}
    for manifest in store.rglob("manifest.json"):
        for file in json.loads(manifest.read_text())["files"]:
            path = manifest.parent / file["path"]
            assert path.stat().st_size == file["size"]
            assert sha256_file(path) == file["sha256"]
            found[f"{manifest.parent.name}/{file['path']}"] = path
    return found


MillMaker = Callable[..., Mill]
