"""Writing a Q4NX container: as the vendor's converter does (the plain safetensors form), or with aligned tensors.

Order and spacing of the vendor's form are the safetensors writer's: widest element first, then by name, compact JSON,
spaces up to a multiple of 8, no holes, no metadata. Source: q4nx.md, section 2.1; huggingface/safetensors.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.intake.safetensors_header import BITS
from draftmill.q4nx.header import LENGTH_BYTES, METADATA
from draftmill.whole_file import whole_file

Content = bytes | np.ndarray

_ORDER = (
    "U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8", "BOOL",
)  # fmt: skip
"""The labels that are written, in the order in which the safetensors writer puts their tensors."""

ENGINE_ALIGNMENT = 64
"""Bytes; the packer of 1bit-MONSTER's engine pads the header and the room between tensors to it."""


@dataclass(frozen=True)
class Stored:
    """A tensor to be written: its bytes, or a call that makes them in their turn, whole or piece by piece, so that one
    at a time is held."""

    dtype: str
    shape: tuple[int, ...]
    data: Content | Callable[[], Content | Iterator[Content]]

    @property
    def nbytes(self) -> int:
        return BITS[self.dtype] * math.prod(self.shape) // 8


def write(
    path: Path,
    tensors: Mapping[str, Stored],
    metadata: Mapping[str, Any] | None = None,
    *,
    header_alignment: int = 8,
    tensor_alignment: int = 1,
) -> None:
    """Writes a container beside `path`, syncs it and renames it there.

    Raises ValueError when a tensor's bytes do not fill its shape and for a label that is not written, OSError.
    """
    order = sorted(tensors, key=lambda name: (_ORDER.index(tensors[name].dtype), name))
    content: dict[str, Any] = {} if metadata is None else {METADATA: dict(metadata)}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin = -(-end // tensor_alignment) * tensor_alignment
        end = begin + tensor.nbytes
        content[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % header_alignment)
    with whole_file(path) as beside, beside.open("wb") as file:
        file.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
        start = file.tell()
        for name in order:
            tensor = tensors[name]
            file.write(b"\0" * (start + content[name]["data_offsets"][0] - file.tell()))
            data = tensor.data() if callable(tensor.data) else tensor.data
            written = sum(file.write(_raw(piece)) for piece in (data if isinstance(data, Iterator) else (data,)))
            if written != tensor.nbytes:
                raise ValueError(f"{name}: {written} bytes given, its shape takes {tensor.nbytes}")


def _raw(data: Content) -> memoryview:
    return memoryview(data) if isinstance(data, bytes) else np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
