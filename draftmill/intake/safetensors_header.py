"""Bounded reader of safetensors headers: what tensors a file holds and where, or why it is refused.

Layout: 8 bytes little-endian header length N, N bytes JSON (space padded), then the tensors' bytes without holes.
Source: the format section of huggingface/safetensors README.md and its Rust reader's validation.
"""

import math
import os
import stat
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from draftmill.intake.bounded_json import parse_object
from draftmill.intake.findings import Findings

HEADER_LIMIT = 100_000_000
LFS_POINTER = b"version https://git-lfs"
MOST_DIMENSIONS = 8
_LENGTH_BYTES = 8
_LARGEST = 2**63 - 1

BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits an element takes, by the format's dtype name."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: `begin` and `end` are absolute offsets in the file, in bytes; shape has rows first."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """`tensors` in the order of their bytes; `metadata` is the file's own `__metadata__`."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str] = field(default_factory=dict)
    data_offset: int = 0


def read_header(path: Path) -> Header:
    """Reads and checks the header of a safetensors file; the tensors' bytes are not read.

    Raises Refused with all that is wrong, OSError when the file cannot be read. Codes: intake.not_regular_file,
    file_empty, lfs_pointer, header_truncated, header_too_large, header_start, json_*, entry_malformed,
    metadata_malformed, dtype_unknown, shape_overflow, offsets_reversed, span_mismatch, tensors_overlap, body_hole,
    body_truncated, body_trailing.
    """
    where = path.name
    findings = Findings()
    if not stat.S_ISREG(path.stat().st_mode):
        findings.add(
            "intake.not_regular_file",
            where,
            "special file or folder",
            "regular file",
            "Put the file itself here.",
        )
        findings.raise_if_any()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(max(_LENGTH_BYTES, len(LFS_POINTER)))
        length = int.from_bytes(start[:_LENGTH_BYTES], "little")
        _check_start(start, size, length, where, findings)
        findings.raise_if_any()
        file.seek(_LENGTH_BYTES)
        raw = file.read(length)
    if raw[:1] != b"{":
        findings.add(
            "intake.header_start",
            where,
            raw[:8].hex(),
            "7b ('{')",
            "The header does not begin with a JSON object; this is not a safetensors file. Fetch it again.",
        )
        findings.raise_if_any()
    content = parse_object(raw, where)
    data_offset = _LENGTH_BYTES + length
    metadata = _metadata(content.pop("__metadata__", {}), where, findings)
    tensors = {}
    for name, value in content.items():
        entry = _entry(value, f"{where}:{name}", data_offset, findings)
        if entry:
            tensors[name] = entry
    findings.raise_if_any()
    tensors = dict(sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)))
    _check_body(tensors, data_offset, size, where, findings)
    findings.raise_if_any()
    return Header(tensors, metadata, data_offset)


def _check_start(start: bytes, size: int, length: int, where: str, findings: Findings) -> None:
    if size == 0:
        findings.add("intake.file_empty", where, 0, "a header and tensors", "The file is empty; fetch it again.")
    elif start.startswith(LFS_POINTER):
        findings.add(
            "intake.lfs_pointer",
            where,
            size,
            "the file itself",
            "This is a Git LFS pointer, not the file; run `git lfs pull` in the clone, or download from the hub.",
        )
    elif length > HEADER_LIMIT:
        findings.add(
            "intake.header_too_large",
            where,
            length,
            HEADER_LIMIT,
            "The header claims more than the format allows; the file is damaged or another one. Fetch it again.",
        )
    elif size < _LENGTH_BYTES + length:
        findings.add(
            "intake.header_truncated",
            where,
            size,
            _LENGTH_BYTES + length,
            "The file ends inside its header; the download was cut short. Fetch it again.",
        )


def _metadata(value: Any, where: str, findings: Findings) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    findings.add(
        "intake.metadata_malformed",
        f"{where}:__metadata__",
        type(value).__name__,
        "an object of strings",
        "The file's own metadata must map text to text; write the file again with the safetensors library.",
    )
    return {}


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _entry(value: Any, where: str, data_offset: int, findings: Findings) -> TensorEntry | None:
    shape = value.get("shape") if isinstance(value, dict) else None
    offsets = value.get("data_offsets") if isinstance(value, dict) else None
    if not (
        isinstance(value, dict)
        and value.keys() == {"dtype", "shape", "data_offsets"}
        and isinstance(value["dtype"], str)
        and isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(map(_natural, shape))
        and isinstance(offsets, list)
        and len(offsets) == 2
        and all(map(_natural, offsets))
    ):
        findings.add(
            "intake.entry_malformed",
            where,
            sorted(map(str, value))[:8] if isinstance(value, dict) else type(value).__name__,
            "dtype, shape and data_offsets, natural numbers below 2^63, at most 8 dimensions",
            "The tensor's entry is not of the format's form; write the file again with the safetensors library.",
        )
        return None
    dtype, (begin, end) = value["dtype"], offsets
    if dtype not in BITS:
        findings.add(
            "intake.dtype_unknown",
            where,
            dtype[:40],
            sorted(BITS),
            "The element type is not one of the format; write the file again with a current safetensors library.",
        )
        return None
    if begin > end:
        findings.add(
            "intake.offsets_reversed",
            where,
            [begin, end],
            "begin <= end",
            "The tensor ends before it begins; the header is damaged. Fetch the file again.",
        )
        return None
    # A zero extent must not hide the overflow of the others.
    if BITS[dtype] * math.prod(extent or 1 for extent in shape) > _LARGEST:
        findings.add(
            "intake.shape_overflow",
            where,
            shape,
            "a size below 2^63 bits",
            "The shape's product does not fit 64 bits; no such tensor exists. Do not trust this file.",
        )
        return None
    bits = BITS[dtype] * math.prod(shape)
    if bits != (end - begin) * 8:
        findings.add(
            "intake.span_mismatch",
            where,
            end - begin,
            bits / 8 if bits % 8 else bits // 8,
            f"Shape {shape} of {dtype} does not take the {end - begin} bytes that the offsets span; fetch it again.",
        )
        return None
    return TensorEntry(dtype, tuple(shape), data_offset + begin, data_offset + end)


def _check_body(tensors: dict[str, TensorEntry], data_offset: int, size: int, where: str, findings: Findings) -> None:
    start = TensorEntry("U8", (0,), data_offset, data_offset)
    for (before, first), (name, second) in pairwise([("the header", start), *tensors.items()]):
        if second.begin < first.end:
            findings.add(
                "intake.tensors_overlap",
                f"{where}:{name}",
                second.begin,
                first.end,
                f"The tensor begins inside the bytes of {before}; tensors may not share bytes. Do not trust this file.",
            )
        elif second.begin > first.end:
            findings.add(
                "intake.body_hole",
                f"{where}:{name}",
                second.begin,
                first.end,
                f"Between {before} and this tensor lie bytes that belong to no tensor; write the file again.",
            )
    end = max((entry.end for entry in tensors.values()), default=data_offset)
    if findings or size == end:
        return
    if size < end:
        findings.add(
            "intake.body_truncated",
            where,
            size,
            end,
            f"The file has {size} of the {end} bytes its header promises; the download was cut short. Fetch it again.",
        )
    else:
        findings.add(
            "intake.body_trailing",
            where,
            size,
            end,
            f"{size - end} bytes follow the last tensor and belong to none; fetch the file again.",
        )
