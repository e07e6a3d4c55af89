"""A small hub with one drafter of every route, among them one that is broken, and the catalogue file for it."""

import json
from pathlib import Path

from tests.e2e.mill import CARD, write_tiny
from tests.support.dflash_packages import SMALLEST, tiny

DONOR, PLAIN, BORROWER, BROKEN = (
    "tiny/SmolLM2-135M",
    "tiny/PARD-SmolLM2-1M",
    "tiny/PARD2-SmolLM2-135M",
    "tiny/PARD-Cut-1M",
)
TARGET = "tiny/Another"
"""What the borrower was trained for: a card, and nothing that could be paired."""
PACKAGE, HEAD = "fast/Small-DFlash-NPU2", "tiny/Gumiho-small-1m"

CHECKPOINT, NAMELESS, FOREIGN = "up/Small-DFlash-b8", "up/Other-DFlash-b8", "up/Foreign-DFlash-b8"
QWEN3, GEMMA = "tiny/Qwen3-Target", "tiny/Gemma-Target"
"""Targets of the first and of the last; of the second the row names none."""

CATALOGUE = """families:
  PARD:
    route: gguf
    names: [tiny/PARD-*]
    quants: [Q8_0]
    signs:
      - config: {spd_type: pard, pard_token: (integer), pard2: [(absent), "false"]}
  PARD-2:
    route: gguf_borrowed
    names: [tiny/PARD2-*]
    quants: [Q8_0]
    signs:
      - config: {spd_type: pard2}
  DFlash:
    route: gate
    names: [fast/*-DFlash-NPU2]
    signs:
      - files: ["*.q4nx"]
        config: {model_type: dflash}
        without_tensors: ["*candidate_selector*"]
  Gumiho:
    route: refuse
    names: [tiny/Gumiho-*]
    signs:
      - files: ["*.bin"]
        without: [config.json]
      - config: {model_type: gumiho}
    reasons:
      - code: gumiho.no_config
        when: {without: [config.json]}
        expected: a config.json that gives the head's sizes
        sentence: The repository does not say what its head is.
        source: the file names at this commit
        would_change: a config.json in the repository
      - code: gumiho.flat_verifier
        measured: a tree of 63 drafts in a round
        expected: one flat chain of drafts
        sentence: A flat verifier cannot use alternative candidates.
        source: gumiho/model/cnets.py topK_genrate
        would_change: its flat chain and its tree, each measured against the target alone
drafters:
  tiny/PARD-SmolLM2-1M:
    family: PARD
    trained_for: [tiny/SmolLM2-135M]
  tiny/PARD2-SmolLM2-135M:
    family: PARD-2
    donor: tiny/SmolLM2-135M@main
    trained_for: [tiny/Another]
  tiny/Gumiho-small-1m: {family: Gumiho}
  fast/Small-DFlash-NPU2: {family: DFlash, licence: openmdw-1.1}
targets:
  tiny/SmolLM2-135M: {}
  tiny/Absent: {}
"""
"""The broken one has no row: it is taken by its name."""


CHECKPOINTS = {
    "families:\n": """families:
  DFlash checkpoint:
    route: dflash
    names: [up/*-DFlash-*]
    signs:
      - without: ["*.q4nx"]
        config: {architectures: DFlashDraftModel}
""",
    "drafters:\n": f"""drafters:
  {CHECKPOINT}: {{family: DFlash checkpoint, donor: {QWEN3}@main}}
  {NAMELESS}: {{family: DFlash checkpoint}}
  {FOREIGN}: {{family: DFlash checkpoint, donor: {GEMMA}@main}}
""",
}
"""What replaces what in the catalogue, for a hub that has checkpoints too."""


def write_donor(root: Path) -> None:
    from draftmill.gguf.header import read_header
    from flows.demo.smollm2 import write_tokenizer
    from tests.support.inputs import smollm2_gguf

    donor = root / DONOR
    donor.mkdir(parents=True)
    write_tokenizer(read_header(smollm2_gguf()).fields, donor)
    (donor / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 49152}))
    (donor / "README.md").write_text(CARD)
    target = root / TARGET
    target.mkdir()
    (target / "README.md").write_text("---\nlicense: apache-2.0\n---\n")


def write_plain(root: Path, repo: str = PLAIN) -> None:
    write_tiny(root / repo, root / DONOR)


def write_borrower(root: Path) -> None:
    layers = {"pard2_target_layers": [-1], "pard2_target_dim": 576, "pard2_scale": 0.02}
    write_tiny(root / BORROWER, None, spd_type="pard2", pard2=True, pard2_proj_bias=False, **layers)


def write_broken(root: Path) -> None:
    """A PARD whose weights end early."""
    write_plain(root, BROKEN)
    path = root / BROKEN / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100_000])


def write_package(root: Path) -> None:
    tiny(root / PACKAGE, 1, **SMALLEST | {"vocab_size": 49152})
    (root / PACKAGE / "LICENSE.OpenMDW-1.1").write_text("terms")
    (root / PACKAGE / "README.md").write_text("---\nlicense: other\nlicense_name: openmdw-1.1\n---\n")


def write_checkpoints(root: Path) -> None:
    """As upstream publishes them: with code beside the weights, which config.json names."""
    from tests.dflash.gguf_form.small import write_checkpoint, write_target
    from tests.support.gemma_target import ROWS, write_gemma_target

    for repo in (CHECKPOINT, NAMELESS, FOREIGN):
        rows = {"vocab_size": ROWS} if repo == FOREIGN else {}
        write_checkpoint(root / repo, num_hidden_layers=1, intermediate_size=256, **rows)
        path = root / repo / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModel": "dflash.Draft"}}))
        (root / repo / "dflash.py").write_text("raise SystemExit('never run')\n")
        (root / repo / "README.md").write_text("---\nlicense: mit\n---\n")
        (root / repo / "LICENSE").write_text("MIT License: terms")
    write_target(root / QWEN3, "Qwen3ForCausalLM", num_hidden_layers=12)
    write_gemma_target(root / GEMMA)
    for repo in (QWEN3, GEMMA):
        (root / repo / "README.md").write_text("---\nlicense: apache-2.0\n---\n")


def write_head(root: Path) -> None:
    """A pickle alone, as the vendor's heads come."""
    (root / HEAD).mkdir(parents=True)
    (root / HEAD / "pytorch_model.bin").write_bytes(b"PK\x03\x04 never loaded")
    (root / HEAD / "README.md").write_text("---\nlicense: mit\n---\n")


def write_all(root: Path) -> None:
    write_donor(root)
    write_plain(root)
    write_borrower(root)
    write_broken(root)
    write_package(root)
    write_head(root)


def write_catalogue(folder: Path, text: str = CATALOGUE) -> Path:
    path = folder / "catalogue.yaml"
    path.write_text(text)
    return path
