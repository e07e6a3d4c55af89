"""Small DFlash packages and checkpoints of both generations in every documented form, and the real small draft."""

import copy
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from draftmill.dflash.config import ARCHITECTURES, DraftConfig
from draftmill.dflash.layout import Layout
from draftmill.dflash.package import MANIFEST, Written, write
from draftmill.dflash.storage import PUBLISHED
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.dflash.vendor_config import vendor_config
from draftmill.q4nx import writing
from draftmill.q4nx.container import Container
from draftmill.q4nx.encodings import Kind
from draftmill.q4nx.writing import Stored
from tests.support.checkpoints import to_bf16, write_safetensors

_FOLDER = tempfile.TemporaryDirectory(prefix="dflash-packages-")
_MADE: dict[str, Written] = {}

SMALLEST: dict[str, Any] = {"num_hidden_layers": 1, "intermediate_size": 256, "vocab_size": 64}
"""Changes that make the cheapest package, where only its form matters."""

REAL = Path(__file__).parents[3] / "shared/data/smollm2-dflash"

LAYOUTS: dict[str, Layout] = {
    "as written by default": Layout(),
    "names without model.": Layout(tensor_prefix=""),
    "scalars without dflash.": Layout(scalar_prefix=""),
    "no prefix at all": Layout(tensor_prefix="", scalar_prefix=""),
    "flat tiles": Layout(form="flat"),
    "grid of tiles": Layout(form="grid"),
    "scalars as 64-bit": Layout(whole_label="I64", real_label="F64"),
    "scalars as floats": Layout(whole_label="F32"),
    "scalars as bf16": Layout(whole_label="BF16", real_label="BF16"),
    "scalars of rank 0": Layout(scalar_shape="[]"),
    "aligned, with metadata": Layout(aligned=True),
}
"""What the published pages leave open about a container."""
SECOND_LAYOUTS = {
    "bf16 codebooks": Layout(codebooks=Kind.BF16),
    "codebooks ending in .weight": Layout(codebook_suffix=".weight"),
    "norms and kernels as f32": Layout(small=Kind.F32),
}
"""And about one of generation 2."""

Content = dict[str, Any]


def _moved(content: Content, section: str) -> Content:
    content = copy.deepcopy(content)
    draft = content.pop("dflash_config")
    draft |= {name: content.pop(name) for name in ("block_size", "rope_theta", "is_causal") if name in content}
    if section == "dflash.":
        return content | {section + name: value for name, value in draft.items()}
    return content | ({section: draft} if section else draft)


CONFIG_FORMS: dict[str, Callable[[Content], Content]] = {
    "as written by default": copy.deepcopy,
    "all at the top": lambda content: _moved(content, ""),
    "all in dflash_config": lambda content: _moved(content, "dflash_config"),
    "an object dflash": lambda content: _moved(content, "dflash"),
    "keys dflash.*": lambda content: _moved(content, "dflash."),
    "rms_eps": lambda content: {"rms_eps" if k == "rms_norm_eps" else k: v for k, v in content.items()},
}
"""Where keys of a package's config may stand."""


def real_draft() -> Path | None:
    """The folder of a real small generation 1 draft in Hugging Face form, None where it is not there."""
    return REAL if (REAL / "model.safetensors").is_file() else None


def real_draft_or_skip() -> Path:
    """The same; the test that asks is skipped where it is not there."""
    folder = real_draft()
    if folder is None:
        pytest.skip("shared/data/smollm2-dflash is not here")
    return folder


def tiny(
    folder: Path,
    generation: Literal[1, 2] = 1,
    *,
    layout: Layout | None = None,
    encoding: Kind | None = None,
    scalars: bool | None = None,
    manifest: bool = True,
    form: Callable[[Content], Content] | None = None,
    seed: int = 0,
    **changes: Any,
) -> Written:
    """Writes a synthetic package of 2 layers; changes: fields of its DraftConfig; form: one of CONFIG_FORMS.

    Quantising takes most of a test's time, so a package that was made once in this process is copied.
    """
    config = synthetic_config(generation, **changes)
    # repr, since fields may be dicts.
    key = repr((config, layout or Layout(), encoding or PUBLISHED[generation], scalars, manifest, seed))
    if key not in _MADE:
        _MADE[key] = write(
            Path(_FOLDER.name) / str(len(_MADE)),
            config,
            synthetic_tensors(config, seed),
            encoding=encoding or PUBLISHED[generation],
            layout=layout,
            scalars=scalars,
            manifest=manifest,
        )
    shutil.copytree(_MADE[key].folder, folder, dirs_exist_ok=True)
    if form:
        edit_config(folder, form)
    return replace(_MADE[key], folder=folder)


def edit_config(folder: Path, change: Callable[[Content], Content]) -> None:
    """Replaces config.json by what `change` makes of it; the manifest follows."""
    content = change(json.loads((folder / "config.json").read_text()))
    (folder / "config.json").write_text(json.dumps(content, indent=2))
    sign(folder)


def edit_container(folder: Path, change: Callable[[dict[str, Any]], object], **how: Any) -> None:
    """Writes model.q4nx again after `change` altered its tensors (name in the file -> Stored); the manifest follows."""
    path = folder / "model.q4nx"
    with Container.open(path) as container:
        tensors = {
            name: Stored(entry.dtype, entry.shape, container.bytes(name).copy())
            for name, entry in container.tensors.items()
        }
    change(tensors)
    writing.write(path, tensors, **how)
    sign(folder)


def sign(folder: Path) -> None:
    """Makes the manifest true again, where there is one."""
    if (folder / MANIFEST).exists():
        lines = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(folder.iterdir())
            if path.name != MANIFEST
        ]
        (folder / MANIFEST).write_text("".join(lines))


def hf_config(config: DraftConfig) -> Content:
    """config.json of an upstream checkpoint: the vendor's without the vendor's marks."""
    content = vendor_config(config) | {"model_type": "qwen3", "dtype": "bfloat16"}
    del content["flm_version"]
    assert content["architectures"][0] in ARCHITECTURES
    return content


def checkpoint(
    folder: Path,
    generation: Literal[1, 2] = 1,
    *,
    names: Callable[[str], str] = str,
    dtype: Literal["BF16", "F16", "F32"] = "BF16",
    extra: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    **changes: Any,
) -> dict[str, np.ndarray]:
    """Writes an upstream checkpoint; returns the float32 values that it holds, by the mill's names."""
    folder.mkdir(parents=True, exist_ok=True)
    config = synthetic_config(generation, **changes)
    (folder / "config.json").write_text(json.dumps(hf_config(config)))
    values = synthetic_tensors(config, seed)
    if dtype == "BF16":
        held = {name: to_bf16(value) for name, value in values.items()}
        values = {name: (bits.astype(np.uint32) << 16).view(np.float32) for name, bits in held.items()}
    else:
        held = {name: value.astype({"F16": np.float16, "F32": np.float32}[dtype]) for name, value in values.items()}
        values = {name: value.astype(np.float32) for name, value in held.items()}
    named = {names(name): value for name, value in held.items()} | dict(extra or {})
    write_safetensors(folder / "model.safetensors", named)
    return values
