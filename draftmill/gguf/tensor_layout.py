"""What a GGUF file's tensors may look like, and where they have to lie.

Bounds: what ggml's own loader enforces (tensors in order, each at the padded end of the one before).
"""

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftmill.outcome import Refusal

_LARGEST = 2**63 - 1
_TYPES = {int(kind) for kind in GGML_QUANT_SIZES}

Problem = tuple[str, Any, Any, str]
"""(code, measured, expected, sentence) of a refusal whose place the caller knows."""


@dataclass(frozen=True)
class GGUFTensor:
    """shape has rows first (NumPy order, the file's reversed); offset is absolute, in bytes."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


def padded(offset: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-offset // alignment) * alignment


def tensor_problem(name: str, shape: tuple[int, ...], kind: int, known: Container[str]) -> Problem | None:
    """What is wrong with one tensor's entry: the first of its name, shape (rows first), type and row length."""
    if name in known or not name:
        return (
            "gguf.tensor_name_twice" if name else "gguf.tensor_name_empty",
            name,
            "a name of its own",
            "Every tensor needs a name that no other has; convert the model again.",
        )
    if 0 in shape or math.prod(shape) > _LARGEST:
        return (
            "gguf.shape_invalid",
            list(shape),
            "extents above 0 with a product below 2^63",
            "No tensor can have this shape; the file is damaged. Fetch it again.",
        )
    if kind not in _TYPES:
        return (
            "gguf.tensor_type_unknown",
            kind,
            sorted(_TYPES),
            "The tensor's type is not one this reader knows; the file is damaged or too new. Make it again.",
        )
    block = GGML_QUANT_SIZES[GGMLQuantizationType(kind)][0]
    row = shape[-1] if shape else 1
    if row % block:
        return (
            "gguf.row_not_blocks",
            row,
            f"a multiple of {block}",
            f"A row of {row} does not divide into blocks of {GGMLQuantizationType(kind).name}; quantize again.",
        )
    return None


def layout_refusals(
    tensors: list[GGUFTensor], alignment: int, header_end: int, size: int, file_name: str
) -> list[Refusal]:
    """Each tensor has to begin at the padded end of the one before it, and the file to end with the last.

    header_end: the offset right behind the header; size: the file's; both in bytes.
    """
    wrong = []
    data_offset = padded(header_end, alignment)
    end = begin = data_offset

    def found(code: str, place: str, measured: int, expected: int, sentence: str) -> None:
        wrong.append(Refusal(code, f"{file_name}: {place}", measured, expected, sentence))

    for tensor in tensors:
        place = f"tensor {tensor.name!r}"
        expected = padded(end, alignment)
        if tensor.offset % alignment:
            found(
                "gguf.offset_unaligned",
                place,
                tensor.offset,
                expected,
                f"The offset is no multiple of the file's alignment {alignment}; make the file again.",
            )
        elif tensor.offset < begin:
            found(
                "gguf.offset_order",
                place,
                tensor.offset,
                expected,
                "The tensor lies before the one that is listed before it; make the file again.",
            )
        elif tensor.offset < end:
            found(
                "gguf.tensors_overlap",
                place,
                tensor.offset,
                expected,
                "The tensor begins inside the one before it; tensors may not share bytes. Do not trust this file.",
            )
        elif tensor.offset > expected:
            found(
                "gguf.data_hole",
                place,
                tensor.offset,
                expected,
                "Before this tensor lie bytes that belong to no tensor; make the file again.",
            )
        begin, end = tensor.offset, tensor.offset + tensor.nbytes
    if wrong:
        return wrong
    if not tensors:
        end = header_end
    if size < end:
        found(
            "gguf.data_truncated",
            "the data",
            size,
            end,
            f"The file has {size} of the {end} bytes its header promises; fetch or make it again.",
        )
    elif size > padded(end, alignment):
        found(
            "gguf.data_trailing",
            "the data",
            size,
            padded(end, alignment),
            "Bytes follow the last tensor and belong to none; fetch or make the file again.",
        )
    return wrong
