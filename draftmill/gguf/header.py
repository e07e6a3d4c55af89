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
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from draftmill.outcome import Refusal, Refused

METADATA_LIMIT = 128 << 20
"""Bytes of keys and values; a vocabulary of a million tokens with its merges takes about 50 MB."""
MOST_DIMENSIONS = 4
LONGEST_KEY = 65535
LONGEST_TENSOR_NAME = 63
DEEPEST_ARRAY = 4
_LARGEST = 2**63 - 1
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_PLAIN_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_LFS_POINTER = b"version https://git-lfs"
_SMALLEST_KEY = 8 + 1 + 4 + 1
_SMALLEST_TENSOR = 8 + 1 + 4 + 4 + 8

_T = GGUFValueType
_CODES = {
    _T.UINT8: "B", _T.INT8: "b", _T.UINT16: "H", _T.INT16: "h", _T.UINT32: "I", _T.INT32: "i",
    _T.FLOAT32: "f", _T.BOOL: "B", _T.UINT64: "Q", _T.INT64: "q", _T.FLOAT64: "d",
}  # fmt: skip
"""Scalar types; with "<" before it the code means the same to struct and to NumPy."""


@dataclass(frozen=True)
class GGUFTensor:
    """shape has rows first (NumPy order, the file's reversed); offset is absolute, in bytes."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


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


class _Reader:
    """A position in the mapped file; every method moves it or refuses."""

    def __init__(self, data: mmap.mmap, size: int, name: str) -> None:
        self.data = data
        self.size = size
        self.limit = METADATA_LIMIT
        self.at = 0
        self.name = name
        self.place = "the header"

    def refused(self, code: str, measured: Any, expected: Any, sentence: str) -> Refused:
        return _refused(code, f"{self.name}: {self.place}", measured, expected, sentence)

    def take(self, form: struct.Struct) -> Any:
        if self.at + form.size > self.size:
            raise self.refused(
                "gguf.header_truncated",
                self.size,
                f"{form.size} more bytes at offset {self.at}",
                "The file ends inside its header; it was cut short. Fetch or make it again.",
            )
        (value,) = form.unpack_from(self.data, self.at)
        self.skip(form.size)
        return value

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > self.limit:
            raise self.refused(
                "gguf.metadata_too_large",
                self.at,
                self.limit,
                "Keys and values take more bytes than any real vocabulary needs; do not trust this file.",
            )

    def text(self, code: str = "gguf.string_too_long", limit: int = _LARGEST) -> str:
        length = self.take(_U64)
        most = min(limit, self.size - self.at)
        if length > most:
            raise self.refused(
                code,
                length,
                f"at most {most}",
                "A text claims more bytes than it may have or the file holds; the file is damaged. Fetch it again.",
            )
        self.skip(length)
        raw = self.data[self.at - length : self.at]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refused(
                "gguf.text_not_utf8",
                raw[max(0, error.start - 4) : error.start + 8].hex(),
                "UTF-8",
                "A text is not UTF-8, and readers disagree what it says; convert the model again.",
            ) from None

    def value(self, kind: int, depth: int = 0) -> tuple[Any, tuple[GGUFValueType, ...]]:
        if kind == _T.STRING:
            return self.text(), (_T.STRING,)
        if kind == _T.ARRAY:
            return self.array(depth + 1)
        if kind not in _FORMS:
            raise self.refused(
                "gguf.value_type_unknown",
                kind,
                [int(known) for known in _T],
                "The value's type is not one of GGUF 2 or 3; the file is damaged or newer than this. Convert it again.",
            )
        value = self.take(_FORMS[_T(kind)])
        if kind == _T.BOOL:
            if value > 1:
                raise self.not_a_bool(value)
            value = bool(value)
        return value, (_T(kind),)

    def array(self, depth: int) -> tuple[list[Any], tuple[GGUFValueType, ...]]:
        if depth > DEEPEST_ARRAY:
            raise self.refused(
                "gguf.array_too_deep",
                depth,
                DEEPEST_ARRAY,
                "Arrays are nested deeper than any real file needs; do not trust this file.",
            )
        kind, count = self.take(_U32), self.take(_U64)
        least = _LEAST_BYTES.get(kind, 1)
        if count > (self.size - self.at) // least:
            raise self.refused(
                "gguf.array_too_long",
                count,
                f"at most {(self.size - self.at) // least}",
                "An array claims more elements than the file has bytes left; the file is damaged. Fetch it again.",
            )
        if kind in _CODES:
            self.skip(count * least)
            values = np.frombuffer(self.data[self.at - count * least : self.at], "<" + _CODES[_T(kind)])
            if kind == _T.BOOL:
                if count and values.max() > 1:
                    raise self.not_a_bool(int(values.max()))
                values = values.astype(bool)
            return values.tolist(), (_T.ARRAY, _T(kind))
        if kind == _T.STRING:
            return self.texts(count), (_T.ARRAY, _T.STRING)
        if kind != _T.ARRAY:
            self.value(kind)
        items = [self.value(kind, depth) for _ in range(count)]
        inner = items[0][1] if items else (_T.ARRAY,)
        return [value for value, _ in items], (_T.ARRAY, *inner)

    def texts(self, count: int) -> list[str]:
        """What `text` gives, `count` times: vocabularies are long, so the sound case has no calls in it."""
        data, at, size, unpack = self.data, self.at, min(self.size, self.limit), _U64.unpack_from
        texts: list[str] = []
        try:
            while len(texts) < count and at + 8 <= size:
                end = at + 8 + unpack(data, at)[0]
                if end > size:
                    break
                texts.append(str(data[at + 8 : end], "utf-8"))
                at = end
        except UnicodeDecodeError:
            pass
        self.at = at
        return texts + [self.text() for _ in range(count - len(texts))]

    def not_a_bool(self, value: int) -> Refused:
        return self.refused(
            "gguf.bool_invalid",
            value,
            "0 or 1",
            "A truth value is not 0 or 1; the file is damaged. Fetch it again.",
        )

    def count(self, what: str, least: int) -> int:
        """A number of things that take at least `least` bytes each."""
        count = self.take(_U64)
        if count > (self.size - self.at) // least:
            raise self.refused(
                f"gguf.{what}_count",
                count,
                f"at most {(self.size - self.at) // least}",
                f"The header claims more {what}s than the file has room for; the file is damaged. Fetch it again.",
            )
        return int(count)

    def header(self) -> GGUFHeader:
        version = self.start()
        tensor_count = self.count("tensor", _SMALLEST_TENSOR)
        key_count = self.count("key", _SMALLEST_KEY)
        fields, types = self.keys(key_count)
        alignment = self.alignment(fields, types)
        self.limit = self.at + METADATA_LIMIT
        entries = [self.entry(index) for index in range(tensor_count)]
        data_offset = _padded(self.at, alignment)
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
        version = self.take(_U32)
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
                raise self.refused("gguf.key_empty", "", "a name", "A key has no name; the file is damaged.")
            if key in fields:
                raise self.refused(
                    "gguf.key_twice",
                    key[:200],
                    "each key once",
                    "The key stands twice, and readers disagree which one counts; convert the model again.",
                )
            fields[key], types[key] = self.value(self.take(_U32))
        self.place = "the header"
        return fields, types

    def alignment(self, fields: dict[str, Any], types: dict[str, tuple[GGUFValueType, ...]]) -> int:
        value = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
        if types.get("general.alignment", (_T.UINT32,)) != (_T.UINT32,) or value < 1 or value & (value - 1):
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
        dimensions = self.take(_U32)
        if dimensions > MOST_DIMENSIONS:
            raise self.refused(
                "gguf.dimensions_too_many",
                dimensions,
                MOST_DIMENSIONS,
                "A tensor has more dimensions than ggml knows; the file is damaged. Fetch it again.",
            )
        shape = tuple(self.take(_U64) for _ in range(dimensions))
        return name, shape[::-1], self.take(_U32), self.take(_U64)

    def tensors(
        self, entries: list[tuple[str, tuple[int, ...], int, int]], alignment: int, data_offset: int
    ) -> dict[str, GGUFTensor]:
        tensors: dict[str, GGUFTensor] = {}
        wrong: list[Refusal] = []
        for name, shape, kind, offset in entries:
            self.place = f"tensor {name!r}"
            finding = self.tensor_finding(name, shape, kind, tensors)
            if finding:
                wrong.append(Refusal(finding[0], f"{self.name}: {self.place}", *finding[1:]))
                continue
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            nbytes = math.prod(shape) // block * block_bytes
            tensors[name] = GGUFTensor(name, shape, GGMLQuantizationType(kind), data_offset + offset, nbytes)
        # Offsets mean nothing while a size is unknown: a finding would only repeat its cause.
        if not wrong:
            wrong = self.layout(list(tensors.values()), alignment, data_offset)
        if wrong:
            raise Refused(*wrong)
        return tensors

    def tensor_finding(
        self, name: str, shape: tuple[int, ...], kind: int, known: dict[str, GGUFTensor]
    ) -> tuple[str, Any, Any, str] | None:
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

    def layout(self, tensors: list[GGUFTensor], alignment: int, data_offset: int) -> list[Refusal]:
        """Each tensor has to begin at the padded end of the one before it, and the file to end with the last."""
        wrong = []
        end = begin = data_offset

        def found(code: str, place: str, measured: int, expected: int, sentence: str) -> None:
            wrong.append(Refusal(code, f"{self.name}: {place}", measured, expected, sentence))

        for tensor in tensors:
            place = f"tensor {tensor.name!r}"
            expected = _padded(end, alignment)
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
            end = self.at
        if self.size < end:
            found(
                "gguf.data_truncated",
                "the data",
                self.size,
                end,
                f"The file has {self.size} of the {end} bytes its header promises; fetch or make it again.",
            )
        elif self.size > _padded(end, alignment):
            found(
                "gguf.data_trailing",
                "the data",
                self.size,
                _padded(end, alignment),
                "Bytes follow the last tensor and belong to none; fetch or make the file again.",
            )
        return wrong


def _padded(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_FORMS = {kind: struct.Struct("<" + code) for kind, code in _CODES.items()}
_LEAST_BYTES = {**{kind: form.size for kind, form in _FORMS.items()}, _T.STRING: 8, _T.ARRAY: 12}
_TYPES = {int(kind) for kind in GGML_QUANT_SIZES}
