"""An upstream DFlash checkpoint: a folder with config.json and safetensors, opened. The same calls as `Package`."""

import os
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from draftmill.dflash.config import DraftConfig, read_config
from draftmill.dflash.inventory import Matched, expected_tensors, match
from draftmill.gguf.checkpoint import INDEX, SourceTensor, absent_files, read_checkpoint
from draftmill.gguf.half_precision import BYTES, cast, stored
from draftmill.intake.findings import Findings
from draftmill.outcome import InputOutput

MASK_EMBEDDING = "mask_embedding.pt"
"""What llama.cpp's converter reads beside the weights (conversion/qwen.py): a row in place of the target's."""


class StoredRows:
    """A tensor of a safetensors file, read by ranges of rows as float32. kind: BF16, F16 or F32."""

    def __init__(self, tensor: SourceTensor) -> None:
        self._tensor = tensor
        self.shape = tensor.shape
        self.kind = tensor.kind

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(self.shape[0])
        width = prod(self.shape[1:]) * BYTES[self._tensor.kind]
        with self._tensor.file.open("rb", buffering=0) as file:
            raw = os.pread(file.fileno(), (last - first) * width, self._tensor.offset + first * width)
        if len(raw) != (last - first) * width:
            raise InputOutput(
                f"{self._tensor.file.name} ends inside {self._tensor.name}: it is being written, or was cut short.",
                code="dflash.checkpoint_changed",
                where=self._tensor.name,
            )
        return cast(stored(raw, self._tensor.kind), self._tensor.kind, "F32").reshape(last - first, *self.shape[1:])


class Checkpoint:
    """An opened checkpoint. tensors: the mill's name -> its rows on disk. Nothing is read at open but headers."""

    def __init__(self, folder: Path, config: DraftConfig, matched: Matched, tensors: dict[str, StoredRows]) -> None:
        self.folder = folder
        self.config = config
        self.variants = matched.variants
        self.tensors = tensors

    @classmethod
    def open(cls, folder: Path, *, causal: bool | None = None) -> Self:
        """Raises Refused with every finding: `read_config`, `read_checkpoint`, `match`, dflash.weights_missing,
        shape_unexpected, mask_embedding."""
        config = read_config(folder, causal=causal)
        findings = Findings()
        for absent in absent_files(folder):
            findings.add(
                "dflash.weights_missing",
                f"{INDEX}:{absent}",
                "no such file",
                "a file of the folder",
                "The index says that tensors are in this file, which is not there; fetch the checkpoint again, whole.",
            )
        findings.raise_if_any()  # each of its tensors would be missing too
        sources = {tensor.name: tensor for tensor in read_checkpoint(folder)}
        matched = match(config, sources, container=False)
        findings.extend(matched.refusals("checkpoint", config.generation))
        for expected in expected_tensors(config, scalars=False):
            name = matched.found.get(expected.name)
            if name is not None and sources[name].shape != expected.shape:
                findings.add(
                    "dflash.shape_unexpected",
                    name,
                    list(sources[name].shape),
                    list(expected.shape),
                    f"The {expected.role} has another shape than config.json gives it; one of them is of another "
                    "draft. Take both from the draft's repository.",
                )
        if (folder / MASK_EMBEDDING).exists():
            findings.add(
                "dflash.mask_embedding",
                MASK_EMBEDDING,
                "a file",
                "absent",
                "The draft brings a mask row of its own, and nothing here uses one: with the target's row it would be "
                "another draft. Take a draft without it.",
            )
        findings.raise_if_any()
        return cls(folder, config, matched, {own: StoredRows(sources[name]) for own, name in matched.found.items()})

    def decode(self, name: str) -> np.ndarray:
        """A tensor whole, float32 of its shape; `name` as in `expected_tensors`. Raises KeyError, InputOutput."""
        return self.tensors[name][:]

    def decode_rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows of a matrix, float32 [len(rows), K], touching only their bytes. Raises KeyError, InputOutput."""
        matrix = self.tensors[name]
        return np.stack([matrix[int(row) : int(row) + 1][0] for row in rows])

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
