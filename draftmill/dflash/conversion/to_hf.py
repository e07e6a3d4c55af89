"""A draft as an upstream checkpoint: config.json and model.safetensors under upstream names.

BF16 and F16 stay what they are. Everything else (codes, the full-width tensors of a GGUF or package) is decoded to
F32, which holds it exactly, or to BF16 where that does: decided tensor by tensor, so nothing is ever rounded.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from draftmill.dflash.conversion.account import NAME, Account, Complete, TensorAccount, how
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.conversion.source import DraftSource, SourceTensor
from draftmill.dflash.conversion.upstream_config import upstream_config
from draftmill.dflash.package import described
from draftmill.gguf.checkpoint import SINGLE
from draftmill.gguf.half_precision import cast
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress
from draftmill.q4nx import writing
from draftmill.q4nx.tiles import ROWS
from draftmill.whole_file import write_whole
from draftmill.whole_folder import whole_folder

PIECE = 1 << 20
"""Weights read at a time: 4 MiB of float32."""
METADATA = {"format": "pt"}
"""What transformers asks of a safetensors file."""


def write_hf(
    source: DraftSource, out: Path, notices: Mapping[str, bytes], complete: Complete, progress: Progress
) -> Account:
    """Writes the folder `out`, whole or not at all.

    Raises Refused dflash.not_finite, OSError.
    """
    labels = {name: label_of(tensor, source.form) for name, tensor in source.tensors.items()}
    dtype = "float32" if "F32" in labels.values() else "float16" if "F16" in labels.values() else "bfloat16"
    total = sum(prod(tensor.shape) * (4 if labels[name] == "F32" else 2) for name, tensor in source.tensors.items())
    done = 0

    def stored(tensor: SourceTensor) -> Iterator[np.ndarray]:
        nonlocal done
        for rows in pieces(tensor):
            values = cast(rows, "F32", labels[tensor.name])
            yield values
            done += values.nbytes
            progress(tensor.name, done, total)

    with whole_folder(out) as partial_folder:
        content = {
            name: writing.Stored(labels[name], tensor.shape, partial(stored, tensor))
            for name, tensor in source.tensors.items()
        }
        writing.write(partial_folder / SINGLE, content, METADATA)
        others = {
            "config.json": json.dumps(upstream_config(source.config, dtype), indent=2).encode() + b"\n",
            **notices,
        }
        for name, data in others.items():
            write_whole(partial_folder / name, data)
        account = complete(
            described(partial_folder, (SINGLE, *others)),
            tuple(_account(tensor, labels[name]) for name, tensor in source.tensors.items()),
        )
        write_whole(partial_folder / NAME, account.as_bytes())
    return account


def label_of(tensor: SourceTensor, form: Form) -> str:
    """The narrowest label that holds every value; a checkpoint's own labels stay."""
    if form == Form.HF or tensor.label in ("BF16", "F16"):
        return tensor.label
    return "BF16" if all(is_bf16(rows) for rows in pieces(tensor)) else "F32"


def pieces(tensor: SourceTensor) -> Iterator[np.ndarray]:
    """The values in ranges of rows, contiguous float32; all of them read, their memory is given back.

    Raises Refused dflash.not_finite.
    """
    step = max(ROWS, PIECE // max(1, prod(tensor.shape[1:])) // ROWS * ROWS)
    for first in range(0, tensor.shape[0], step):
        rows = np.ascontiguousarray(tensor[first : first + step], np.float32)
        if not np.isfinite(rows).all():
            broken = first + int(np.argwhere(~np.isfinite(rows))[0][0])
            raise Refused(
                Refusal(
                    "dflash.not_finite",
                    tensor.name,
                    int(np.count_nonzero(~np.isfinite(rows))),
                    "finite values",
                    f"Values are infinite or no numbers, the first in row {broken}: the draft is damaged; take it "
                    "from its publisher again.",
                )
            )
        yield rows
    tensor.release()


def is_bf16(rows: np.ndarray) -> bool:
    return not (rows.view(np.uint32) & 0xFFFF).any()


def _account(tensor: SourceTensor, label: str) -> TensorAccount:
    # Whatever the label, it holds every value (`label_of`).
    return TensorAccount(tensor.name, tensor.shape, tensor.label, label, how(tensor.label, label, 0.0), 0.0, 0.0)
