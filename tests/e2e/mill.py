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
from draftmill.gguf.header import read_header
from flows.demo.smollm2 import write_tokenizer
from tests.support.checkpoints import write_checkpoint
from tests.support.inputs import ROOT, smollm2_gguf
from tests.support.pickled import write_tensors

DRAFT, DONOR, PLAIN = "tiny/PARD2-SmolLM2-135M", "tiny/SmolLM2-135M", "tiny/PARD-SmolLM2-1M"
MASK = 49200
"""An id of the padding above SmolLM2's 49152 tokens."""
CARD = "---\nlicense: apache-2.0\nbase_model: HuggingFaceTB/SmolLM2-135M\n---\n"


def write_tiny(folder: Path, tokenizer: Path | None, **declared: Any) -> None:
    """A random PARD draft of the Llama architecture. A vocabulary of 49,152 keeps a whole run short."""
    write_checkpoint(
        folder,
        "LlamaForCausalLM",
        tokenizer=tokenizer,
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        vocab_size=49280,
        bos_token_id=1,
        eos_token_id=2,
        **{"pard_token": MASK, "spd_type": "pard", **declared},
    )
    (folder / "README.md").write_text(CARD)


def write_hub(root: Path) -> None:
    """A PARD draft with its tokenizer, a PARD-2 one of weights and projector alone, and the donor of the second."""
    donor = root / DONOR
    donor.mkdir(parents=True)
    write_tokenizer(read_header(smollm2_gguf()).fields, donor)
    write_tiny(root / PLAIN, donor)
    layers = {"pard2_target_layers": [-1, -8, -16, -24], "pard2_target_dim": 4 * 576, "pard2_scale": 0.02}
    write_tiny(root / DRAFT, None, spd_type="pard2", pard2=True, pard2_proj_bias=False, **layers)
    write_tensors(root / DRAFT / "warp_model.bin", {"target_proj.weight": (64, 4 * 576)})
    (donor / "config.json").write_bytes((root / PLAIN / "config.json").read_bytes())
    (donor / "README.md").write_text(CARD)


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
