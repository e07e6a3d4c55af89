"""Small drafts in each form, and what their files hold, read without the mill: by the safetensors and gguf packages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from safetensors import deserialize

from draftmill.dflash.conversion.account import Account
from draftmill.dflash.conversion.convert import convert
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.forward import Draft
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.layout import Layout
from draftmill.q4nx.encodings import Kind
from tests.dflash.gguf_form.small import write_target
from tests.gguf.convert_models import TINY_VOCAB
from tests.support.dflash_packages import checkpoint, tiny

__all__ = ["TINY_VOCAB", "safetensors", "write_target"]

SMALL: dict[str, Any] = {"num_hidden_layers": 1, "intermediate_size": 256, "vocab_size": TINY_VOCAB}
PADDED: dict[str, Any] = SMALL | {"hidden_size": 288, "intermediate_size": 320}
"""Rows of 288 and 320 weights: whole groups of 32, and 224 and 192 columns of padding in tiles of 256."""


def write_hf(folder: Path, generation: int = 1, **changes: Any) -> Path:
    checkpoint(folder, generation, **SMALL | changes)  # type: ignore[arg-type]
    return folder


def write_package(folder: Path, generation: int = 1, **changes: Any) -> Path:
    """Codebooks of 300 rows are no whole tiles."""
    layout = Layout(codebooks=Kind.BF16)
    tiny(folder, generation, layout=layout, **SMALL | changes)  # type: ignore[arg-type]
    return folder


def to(form: str, source: Path, out: Path, **options: Any) -> Account:
    return convert(source, out, Form(form), **options)


def safetensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Name -> label, shape and bytes, as the safetensors package reads the file."""
    found = deserialize((folder / "model.safetensors").read_bytes())
    return {name: (each["dtype"], each["shape"], bytes(each["data"])) for name, each in found}


def blocks(path: Path) -> dict[str, tuple[str, bytes]]:
    """Name -> type and bytes, as the gguf package reads the file."""
    return {each.name: (each.tensor_type.name, each.data.tobytes()) for each in GGUFReader(path).tensors}


def container(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Name -> label, shape and bytes of a Q4NX file, read by its published header."""
    data = (folder / "model.q4nx").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {
        name: (each["dtype"], each["shape"], body[slice(*each["data_offsets"])])
        for name, each in header.items()
        if name != "__metadata__"
    }


def output(path: Path) -> np.ndarray:
    """The reference forward's rows, of features and a block that are the same for every form of a draft."""
    draft = Draft.open(path) if path.is_dir() else Draft(Weights(GgufDraft.open(path), np.dtype(np.float32)))
    with draft:
        rng = np.random.default_rng(3)
        features = rng.standard_normal((5, draft.config.taps * draft.config.hidden_size)).astype(np.float32)
        block = rng.standard_normal((4, draft.config.hidden_size)).astype(np.float32)
        return draft.forward(features, block)
