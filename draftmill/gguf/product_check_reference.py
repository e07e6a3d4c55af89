"""The weights a product is held against, in the product's own layout: the checkpoint itself, or a GGUF made before.

A checkpoint's rows are read with pread, so that memory stays bounded: a mapped file counts as used memory.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from draftmill.gguf.header import GGUFHeader, GGUFTensor
from draftmill.gguf.size_prediction import ExpectedTensor, rope_parameters
from draftmill.intake.bounded_json import read_object
from draftmill.intake.safetensors_header import TensorEntry, read_header
from draftmill.intake.weights import INDEX, INDEX_LIMIT

_DTYPES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "BF16": ("<u2", lambda raw: np.left_shift(raw, 16, dtype=np.uint32).view(np.float32)),
    "F16": ("<f2", lambda raw: raw.astype(np.float32)),
    "F32": ("<f4", lambda raw: raw),
}


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Exactly `size` bytes at `offset`. Raises OSError when the file ends before."""
    parts = bytearray()
    while len(parts) < size:
        part = os.pread(descriptor, size - len(parts), offset + len(parts))
        if not part:
            raise OSError(f"the file ends at {offset + len(parts)}, {size - len(parts)} bytes short")
        parts += part
    return bytes(parts)


class Reference(Protocol):
    """Where the true values come from. `name` is for the record."""

    name: str

    def shape(self, tensor: ExpectedTensor) -> tuple[int, ...] | None:
        """Shape, rows first, or None when the reference does not have the tensor."""

    def rows(self, tensor: ExpectedTensor, start: int, stop: int) -> np.ndarray:
        """Rows start..stop as float32 (rows, columns); both are multiples of the head size where heads are turned."""

    def close(self) -> None: ...


@dataclass
class GGUFRows:
    """Rows of a GGUF's tensors, dequantized by `gguf.quants`."""

    path: Path
    header: GGUFHeader

    def __post_init__(self) -> None:
        self.name = self.path.name
        self._descriptor = os.open(self.path, os.O_RDONLY)

    def shape(self, tensor: ExpectedTensor) -> tuple[int, ...] | None:
        found = self.header.tensors.get(tensor.name)
        return found.shape if found else None

    def rows(self, tensor: ExpectedTensor, start: int, stop: int) -> np.ndarray:
        found: GGUFTensor = self.header.tensors[tensor.name]
        columns = found.shape[-1]
        block, size = GGML_QUANT_SIZES[found.type]
        stride = columns // block * size
        raw = np.frombuffer(read_at(self._descriptor, (stop - start) * stride, found.offset + start * stride), np.uint8)
        raw = raw.reshape(stop - start, stride)
        if found.type == GGMLQuantizationType.F32:
            return raw.view("<f4")
        return np.asarray(dequantize(raw, found.type), np.float32)

    def close(self) -> None:
        os.close(self._descriptor)


class Checkpoint:
    """Rows of a Hugging Face checkpoint's safetensors, turned into the GGUF's order where the model's definition asks.

    Raises Refused (intake.*) for files that are no safetensors.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.name = "checkpoint"
        self._config = config
        self._entries: dict[str, tuple[int, TensorEntry]] = {}
        self._descriptors: list[int] = []
        for path in _weight_files(folder):
            descriptor = os.open(path, os.O_RDONLY)
            self._descriptors.append(descriptor)
            for name, entry in read_header(path).tensors.items():
                self._entries[name] = (descriptor, entry)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def shape(self, tensor: ExpectedTensor) -> tuple[int, ...] | None:
        if tensor.source is None:
            return tensor.shape
        found = self._entries.get(tensor.source)
        return found[1].shape if found and found[1].dtype in _DTYPES else None

    def rows(self, tensor: ExpectedTensor, start: int, stop: int) -> np.ndarray:
        if tensor.source is None:
            return rope_factors(self._config)[None]
        descriptor, entry = self._entries[tensor.source]
        columns = entry.shape[-1]
        form, convert = _DTYPES[entry.dtype]
        stride = columns * np.dtype(form).itemsize
        raw = np.frombuffer(read_at(descriptor, (stop - start) * stride, entry.begin + start * stride), form)
        values = convert(raw)
        if tensor.heads:
            # Two halves of a head side by side become pairs: row 2j + k of a head is row k d/2 + j of the checkpoint.
            head = tensor.shape[0] // tensor.heads
            values = values.reshape(-1, 2, head // 2, columns if len(tensor.shape) == 2 else 1).swapaxes(1, 2)
        return values.reshape(stop - start, columns)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def _weight_files(folder: Path) -> list[Path]:
    """The files that the index names, or without one every model*.safetensors, as transformers and the converter do."""
    index = folder / INDEX
    if index.is_file():
        names = sorted(set(read_object(index, INDEX, INDEX_LIMIT)["weight_map"].values()))
        return [folder / Path(name).name for name in names]
    return sorted(folder.glob("model*.safetensors"))


def rope_factors(config: dict[str, Any]) -> np.ndarray:
    """rope_freqs.weight of Llama 3.1: by how much each rotary frequency is divided, float32 (head size / 2,).

    Source: `_compute_llama3_parameters` of transformers' modeling_rope_utils.py, in the form llama.cpp stores it: long
    wavelengths are divided by `factor`, short ones left alone, those between interpolated.
    """
    rope = rope_parameters(config)
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    context = float(rope["original_max_position_embeddings"])
    wavelength = 2 * math.pi * float(rope["rope_theta"]) ** (np.arange(0, head, 2) / head)
    # The share of the frequency that is kept: 0 at the low end of the band, 1 at the high end.
    kept = np.clip((context / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / factor + kept)).astype(np.float32)
