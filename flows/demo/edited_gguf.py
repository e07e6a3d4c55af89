"""A GGUF file made from another one: its keys, but for those given anew, and tensors of one's own making."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from draftmill.gguf.header import GGUFHeader, map_tensor
from draftmill.gguf.quantize_layout import lay_out
from draftmill.progress import Progress, silent
from draftmill.whole_file import whole_file


@dataclass(frozen=True)
class Made:
    """A tensor to be written. shape: rows first; encoded: gives its bytes, uint8, when their turn comes."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    encoded: Callable[[], np.ndarray]


def write_edited(
    header: GGUFHeader, out: Path, tensors: Iterable[Made], changes: Mapping[str, Any], progress: Progress = silent
) -> None:
    """`changes` replaces values of keys that `header` has, by values of the same type. progress counts bytes."""
    tensors = list(tensors)
    fields = header.fields | {key: changes[key] for key in header.fields if key in changes}
    kinds = [(tensor.name, tensor.shape, tensor.kind) for tensor in tensors]
    layout = lay_out(fields, header.types, kinds, header.alignment)
    with whole_file(out) as beside, beside.open("wb") as file:
        file.write(layout.head)
        for tensor, slot in zip(tensors, layout.slots, strict=True):
            data = tensor.encoded()
            if data.nbytes != slot.nbytes:
                raise ValueError(f"{tensor.name} has {data.nbytes} bytes, {slot.nbytes} are its size")
            file.seek(slot.offset)
            file.write(data.data)
            progress(out.name, slot.offset + slot.nbytes, layout.size)
        file.truncate(layout.size)


def values(path: Path, header: GGUFHeader, name: str) -> np.ndarray:
    """A tensor's values as float32, in its shape."""
    tensor = header.tensors[name]
    return np.asarray(dequantize(map_tensor(path, tensor), tensor.type).reshape(tensor.shape), np.float32)


def encode(weights: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Float32 values as the bytes of a type that NumPy alone can make: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1."""
    return np.ascontiguousarray(quantize(weights, kind)).view(np.uint8).reshape(-1)
