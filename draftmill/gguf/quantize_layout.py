"""The bytes of a GGUF file in front of its tensors, written from a header that was read: nothing is lost or reordered.

Layout: the GGUF specification in ggml's docs/gguf.md, version 3.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

VERSION = 3
_T = GGUFValueType
_CODES = {
    _T.UINT8: "B", _T.INT8: "b", _T.UINT16: "H", _T.INT16: "h", _T.UINT32: "I", _T.INT32: "i",
    _T.FLOAT32: "f", _T.BOOL: "?", _T.UINT64: "Q", _T.INT64: "q", _T.FLOAT64: "d",
}  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """Where a tensor goes: shape with rows first, offset absolute in bytes."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Layout:
    """A file to be written: `head` are its first bytes, `size` is the whole of it, padding included."""

    head: bytes
    slots: tuple[Slot, ...]
    size: int


def lay_out(
    fields: Mapping[str, Any],
    types: Mapping[str, tuple[GGUFValueType, ...]],
    tensors: Sequence[tuple[str, tuple[int, ...], GGMLQuantizationType]],
    alignment: int,
) -> Layout:
    """fields and types as in `draftmill.gguf.header.GGUFHeader`; tensors are (name, shape with rows first, type)."""
    keys = b"".join(_text(key) + _typed(fields[key], types[key]) for key in fields)
    head = b"GGUF" + struct.pack("<IQQ", VERSION, len(tensors), len(fields)) + keys
    infos, places, end = [], [], 0
    for name, shape, kind in tensors:
        block, block_bytes = GGML_QUANT_SIZES[kind]
        nbytes = math.prod(shape) // block * block_bytes
        infos.append(
            _text(name)
            + struct.pack("<I", len(shape))
            + struct.pack(f"<{len(shape)}Q", *reversed(shape))
            + struct.pack("<IQ", int(kind), end)
        )
        places.append((name, shape, kind, end, nbytes))
        end += _padded(nbytes, alignment)
    head += b"".join(infos)
    head += b"\0" * (_padded(len(head), alignment) - len(head))
    slots = tuple(Slot(name, shape, kind, len(head) + at, nbytes) for name, shape, kind, at, nbytes in places)
    return Layout(head, slots, len(head) + end)


def _padded(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any, types: tuple[GGUFValueType, ...]) -> bytes:
    return struct.pack("<I", types[0]) + _value(value, types)


def _value(value: Any, types: tuple[GGUFValueType, ...]) -> bytes:
    kind = types[0]
    if kind == _T.STRING:
        return _text(value)
    if kind != _T.ARRAY:
        return struct.pack("<" + _CODES[kind], value)
    inner = types[1:]
    head = struct.pack("<IQ", inner[0], len(value))
    if inner[0] in _CODES:
        return head + struct.pack(f"<{len(value)}{_CODES[inner[0]]}", *value)
    return head + b"".join(_value(item, inner) for item in value)
