"""Bounded reader of GGUF headers (versions 2 and 3, little-endian): metadata and where each tensor lies.

It stands in front of every other GGUF reader: gguf 0.19.0 loops over an array's claimed length before it looks at the
file's. Every count is held against the bytes that are left before anything is allocated, so time and memory are linear
in the file's header. Layout: the GGUF specification in ggml's docs/gguf.md; bounds: what ggml's own loader enforces
(names below 64 bytes, at most 4 dimensions, tensors in order at the padded end of the one before).
"""

import math
import mmap
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from draftmill.gguf.header_stream import METADATA_LIMIT, U32, U64, HeaderStream
from draftmill.gguf.tensor_layout import GGUFTensor, layout_refusals, padded, tensor_problem
from draftmill.outcome import Refusal, Refused

__all__ = ["GGUFHeader", "GGUFTensor", "map_tensor", "read_header"]

MOST_DIMENSIONS = 4
LONGEST_KEY = 65535
LONGEST_TENSOR_NAME = 63
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_PLAIN_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_LFS_POINTER = b"version https://git-lfs"
_SMALLEST_KEY = 8 + 1 + 4 + 1
_SMALLEST_TENSOR = 8 + 1 + 4 + 4 + 8


@dataclass(frozen=True)
class GGUFHeader:
    """`types` gives a field's value type, for an array followed by that of its elements (when it has any).

    `warnings` names keys that are not lower-case dotted ASCII; `data_offset` and `size` are in bytes.
    """

    version: int
    alignment: int
    fields: dict[str, Any]
    types: dict[str, tuple[GGUFValueType, ...]]
    tensors: dict[str, GGUFTensor]
    data_offset: int
    size: int
    warnings: tuple[str, ...] = ()


def read_header(path: Path) -> GGUFHeader:
    """Reads and checks all of a GGUF file but its tensors' bytes.

    Raises Refused: what breaks the stream ends the reading with one finding, what is wrong with tensors is listed
    in full. OSError when the file cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise _refused("gguf.not_regular_file", path.name, "special file or folder", "regular file", "Give a file.")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise _refused("gguf.file_empty", path.name, 0, "a GGUF file", "The file is empty; make or fetch it again.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data, size, path.name).header()


def map_tensor(path: Path, tensor: GGUFTensor) -> np.memmap:
    """The tensor's raw bytes, uint8 of shape (nbytes,), mapped read-only."""
    return np.memmap(path, np.uint8, "r", offset=tensor.offset, shape=(tensor.nbytes,))


def _refused(code: str, where: str, measured: Any, expected: Any, sentence: str) -> Refused:
    return Refused(Refusal(code, where, measured, expected, sentence))


class _Reader(HeaderStream):
    """Reads the parts of the header in their order."""

    def header(self) -> GGUFHeader:
        version = self.start()
        tensor_count = self.count("tensor", _SMALLEST_TENSOR)
        key_count = self.count("key", _SMALLEST_KEY)
        fields, types = self.keys(key_count)
        alignment = self.alignment(fields, types)
        self.limit = self.at + METADATA_LIMIT
        entries = [self.entry(index) for index in range(tensor_count)]
        data_offset = padded(self.at, alignment)
        tensors = self.tensors(entries, alignment, data_offset)
        warnings = tuple(
            f"key {key!r} is not lower-case dotted ASCII" for key in fields if not _PLAIN_KEY.fullmatch(key)
        )
        return GGUFHeader(version, alignment, fields, types, tensors, data_offset, self.size, warnings)

    def start(self) -> int:
        magic = self.data[:4]
        if self.data[: len(_LFS_POINTER)] == _LFS_POINTER:
            raise self.refused(
                "gguf.lfs_pointer",
                self.size,
                "the file itself",
                "This is a Git LFS pointer, not the file; run `git lfs pull` in the clone, or download from the hub.",
            )
        if magic != b"GGUF":
            raise self.refused(
                "gguf.not_gguf", magic.hex(), b"GGUF".hex(), "The file does not begin with GGUF; give a GGUF file."
            )
        self.at = 4
        version = self.take(U32)
        if version not in _VERSIONS and int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise self.refused(
                "gguf.big_endian",
                version,
                list(_VERSIONS),
                "The file is big-endian; convert it again for little-endian machines (the converter's default).",
            )
        if version not in _VERSIONS:
            raise self.refused(
                "gguf.version_unknown",
                version,
                list(_VERSIONS),
                "The GGUF version is not one this reader knows; convert the model again with a current converter.",
            )
        return int(version)

    def keys(self, count: int) -> tuple[dict[str, Any], dict[str, tuple[GGUFValueType, ...]]]:
        fields: dict[str, Any] = {}
        types: dict[str, tuple[GGUFValueType, ...]] = {}
        for index in range(count):
            self.place = f"key {index}"
            key = self.text("gguf.key_too_long", LONGEST_KEY)
            self.place = f"key {key[:80]!r}"
            if not key:
                raise self.refused("gguf.key_empty", "", "a name", "A key has no name; convert the model again.")
            if key in fields:
                raise self.refused(
                    "gguf.key_twice",
                    key[:200],
                    "each key once",
                    "The key stands twice, and readers disagree which one counts; convert the model again.",
                )
            fields[key], types[key] = self.value(self.take(U32))
        self.place = "the header"
        return fields, types

    def alignment(self, fields: dict[str, Any], types: dict[str, tuple[GGUFValueType, ...]]) -> int:
        value = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
        form = types.get("general.alignment", (GGUFValueType.UINT32,))
        if form != (GGUFValueType.UINT32,) or value < 1 or value & (value - 1):
            self.place = "key 'general.alignment'"
            raise self.refused(
                "gguf.alignment_invalid",
                value if isinstance(value, int) else type(value).__name__,
                "a power of two, uint32",
                "The alignment is not a power of two; make the file again with a current converter.",
            )
        return int(value)

    def entry(self, index: int) -> tuple[str, tuple[int, ...], int, int]:
        """(name, shape with rows first, type number, offset from the data's start)."""
        self.place = f"tensor {index}"
        name = self.text("gguf.tensor_name_too_long", LONGEST_TENSOR_NAME)
        self.place = f"tensor {name!r}"
        dimensions = self.take(U32)
        if dimensions > MOST_DIMENSIONS:
            raise self.refused(
                "gguf.dimensions_too_many",
                dimensions,
                MOST_DIMENSIONS,
                "A tensor has more dimensions than ggml knows; the file is damaged. Fetch it again.",
            )
        shape = tuple(self.take(U64) for _ in range(dimensions))
        return name, shape[::-1], self.take(U32), self.take(U64)

    def tensors(
        self, entries: list[tuple[str, tuple[int, ...], int, int]], alignment: int, data_offset: int
    ) -> dict[str, GGUFTensor]:
        tensors: dict[str, GGUFTensor] = {}
        wrong: list[Refusal] = []
        for name, shape, kind, offset in entries:
            self.place = f"tensor {name!r}"
            problem = tensor_problem(name, shape, kind, tensors)
            if problem:
                wrong.append(Refusal(problem[0], f"{self.name}: {self.place}", *problem[1:]))
                continue
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            nbytes = math.prod(shape) // block * block_bytes
            tensors[name] = GGUFTensor(name, shape, GGMLQuantizationType(kind), data_offset + offset, nbytes)
        # Offsets mean nothing while a size is unknown: a finding would only repeat its cause.
        if not wrong:
            wrong = layout_refusals(list(tensors.values()), alignment, self.at, self.size, self.name)
        if wrong:
            raise Refused(*wrong)
        return tensors
