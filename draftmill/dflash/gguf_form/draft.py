"""A DFlash draft in a GGUF file, opened. The same calls as `Package` and `Checkpoint`, and the stored blocks as they
are."""

import math
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.gguf_form.config_reading import read_gguf_config
from draftmill.dflash.gguf_form.tensor_names import extension, gguf_name
from draftmill.dflash.inventory import Expected, Variant, expected_tensors
from draftmill.gguf.header import GGUFHeader, GGUFTensor, map_tensor, read_header
from draftmill.intake.findings import Findings


class GgufRows:
    """A tensor of a GGUF file. shape: logical, rows first. Read by ranges of rows as float32, or as stored."""

    def __init__(self, path: Path, tensor: GGUFTensor) -> None:
        self.shape = tensor.shape
        self.type = tensor.type
        rows = tensor.shape[0] if len(tensor.shape) > 1 else 1
        self.stored: np.ndarray = map_tensor(path, tensor).reshape(rows, -1)
        """uint8 [rows, bytes of a row]; a vector is one row, and of more extents all but the first make a row."""

    def __getitem__(self, rows: slice) -> np.ndarray:
        if len(self.shape) == 1:
            return decoded(self.stored, self.type).reshape(self.shape)[rows]
        return decoded(self.stored[rows], self.type).reshape(-1, *self.shape[1:])


def decoded(blocks: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """float32 of rows of blocks, uint8 [..., bytes]. Raises NotImplementedError for a type that is not read."""
    return np.ascontiguousarray(quants.dequantize(np.ascontiguousarray(blocks), kind), np.float32)


class GgufDraft:
    """An opened GGUF draft. tensors: the mill's name -> its rows, mapped, in the file's order. Nothing is decoded at
    open."""

    def __init__(self, path: Path, config: DraftConfig, header: GGUFHeader, tensors: dict[str, GgufRows]) -> None:
        self.path = path
        self.config = config
        self.header = header
        self.tensors = tensors
        kinds = Counter(rows.type.name for rows in tensors.values())
        self.variants = tuple(Variant("GGUF type", kind, count) for kind, count in sorted(kinds.items()))

    @classmethod
    def open(cls, path: Path, *, causal: bool | None = None) -> Self:
        """Raises Refused with every finding: `read_header`, `read_gguf_config`, dflash.tensor_missing,
        tensor_unexplained, shape_unexpected, gguf_type_unreadable; OSError."""
        header = read_header(path)
        config = read_gguf_config(header, path.name, causal=causal)
        wanted = {gguf_name(each.name): each for each in expected_tensors(config, scalars=False)}
        findings = Findings()
        for name, each in wanted.items():
            _check(header.tensors.get(name), name, each, path.name, findings)
        for name in header.tensors.keys() - wanted.keys():
            what = extension(name)
            findings.add(
                "dflash.tensor_unexplained",
                f"{path.name}:{name}",
                name,
                "absent",
                f"The tensor is {what}, an extension that DFlash does not have; without it the draft is another one. "
                "Take a draft that has none."
                if what
                else "No tensor of this draft has such a name; what it does is unknown. Convert the draft again.",
            )
        findings.raise_if_any()
        rows = {wanted[name].name: GgufRows(path, tensor) for name, tensor in header.tensors.items()}
        return cls(path, config, header, rows)

    def raw(self, name: str) -> tuple[GGMLQuantizationType, np.ndarray]:
        """A tensor's type and its stored rows, uint8 [rows, bytes of a row], mapped. Raises KeyError."""
        rows = self.tensors[name]
        return rows.type, rows.stored

    def decode(self, name: str) -> np.ndarray:
        """A tensor whole, float32 of its shape; `name` as in `expected_tensors`. Raises KeyError."""
        return self.tensors[name][:]

    def decode_rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows of a matrix, float32 [len(rows), K], touching only their bytes. Raises KeyError, ValueError when it is
        no matrix or has no such row."""
        tensor = self.tensors[name]
        if len(tensor.shape) != 2:
            raise ValueError(f"{name} is no matrix")
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < tensor.shape[0]:
            raise ValueError(f"rows must lie in 0..{tensor.shape[0] - 1}")
        return decoded(tensor.stored[rows], tensor.type).reshape(len(rows), tensor.shape[1])

    def close(self) -> None:
        """Lets go of the mapped file."""
        self.tensors = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _check(tensor: GGUFTensor | None, name: str, expected: Expected, where: str, findings: Findings) -> None:
    if tensor is None:
        findings.add(
            "dflash.tensor_missing",
            f"{where}:{name}",
            "absent",
            list(expected.shape),
            f"The {expected.role} is not in the file; the draft cannot run without it. Convert the draft again.",
        )
    elif tensor.shape != expected.shape:
        findings.add(
            "dflash.shape_unexpected",
            f"{where}:{name}",
            list(tensor.shape),
            list(expected.shape),
            f"The {expected.role} has another shape than the file's keys give it; convert the draft again.",
        )
    elif not _readable(tensor.type):
        findings.add(
            "dflash.gguf_type_unreadable",
            f"{where}:{name}",
            tensor.type.name,
            "a type that the gguf package decodes",
            "Weights of this type cannot be decoded here; quantize the draft to another type.",
        )


def _readable(kind: GGMLQuantizationType) -> bool:
    block, nbytes = quants.GGML_QUANT_SIZES[kind]
    try:
        return math.prod(quants.dequantize(np.zeros((1, nbytes), np.uint8), kind).shape) == block
    except NotImplementedError:
        return False
